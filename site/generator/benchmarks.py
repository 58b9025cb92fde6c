"""Generate a plot and a section for each benchmark against a stock baseline."""

from __future__ import annotations

from generator import markdown
from generator.evidence import Benchmark, Piece, Ratio
from generator.plots import Plot
from trimaran.report.rows import Dot, Row, Table

OUTCOMES = ("goal met", "goal not met", "no goal")


def _outcome(ratio: Ratio) -> str:
    return OUTCOMES[2] if ratio.met is None else OUTCOMES[0] if ratio.met else OUTCOMES[1]


def ratios(piece: Piece[Benchmark]) -> Plot:
    """Return a plot of the ratios of a benchmark: smallest, median, largest value and goal."""
    content = piece.content
    rows = [
        Row(ratio.text, [Dot(ratio.median, f"{ratio.min:.3g} to {ratio.max:.3g}, median"
                             f" {ratio.median:.3g}; {outcome}", outcome, ratio.min, ratio.max)],
            ratio.goal, f"{ratio.median:.3g}")
        for ratio, outcome in ((ratio, _outcome(ratio)) for ratio in content.ratios)
    ]
    name = piece.path.rpartition("/")[2].removesuffix(".json")
    asked = sum(ratio.goal is not None for ratio in content.ratios)
    reached = sum(bool(ratio.met) for ratio in content.ratios)
    return Plot(
        f"ratios-{name}", Table("ratio", rows, OUTCOMES, zero=True),
        f"{len(rows)} ratios of the benchmark {content.benchmark}, each with the least, the"
        f" median and the largest of {len(content.ratios[0].values)} rounds;"
        + (f" {reached} of {asked} goals are met." if asked else " None has a goal."),
        "Line: least to largest of the rounds; dot: median; vertical line: the goal. Measured"
        f" {content.day} on {content.machine.machine.text}.",
        ["ratio", "least:", "median:", "largest:", "goal:", "outcome"],
        [[ratio.text, *(f"{value:.3g}" for value in (ratio.min, ratio.median, ratio.max)),
          "-" if ratio.goal is None else f"{ratio.goal:g}", _outcome(ratio)]
         for ratio in content.ratios],
    )


def _figure(value: float) -> str:
    """Return a rate with four significant digits; rates from 1000 are rounded to integers."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def part(page: str, piece: Piece[Benchmark]) -> tuple[str, list[Plot]]:
    """Return the section of a benchmark and its plots; a benchmark without ratios has no plot."""
    content = piece.content
    plots = [ratios(piece)] if content.ratios else []
    facts = content.machine
    rates = markdown.table(
        ["rate", "unit", "least:", "median:", "largest:"],
        [[rate.name, rate.unit, *map(_figure, (rate.min, rate.median, rate.max))]
         for rate in content.rates],
    )
    where = [
        f"{markdown.moment(content.day)}, {facts.machine.text}, {facts.memory_gib:g} GiB",
        f"Python {facts.python}, "
        + ", ".join(f"{name} {version}" for name, version in facts.packages.items()),
        f"image {facts.image or 'none'} (`{facts.image_digest or 'no digest'}`)",
        f"load before: {facts.load_before:g}; others used {facts.others:.1%} of the cores, the"
        f" hypervisor {facts.stolen:.1%}",
        f"[all values]({markdown.link(page, f'files/{piece.path}')})",
        *content.notes, *content.not_measured,
    ]
    title = f"{content.benchmark}, {content.day}"
    for chosen in (content.settings.get("cases"), content.settings.get("option")):
        if isinstance(chosen, list) and chosen and all(isinstance(word, str) for word in chosen):
            title += f" ({', '.join(chosen)})"
    return "\n\n".join([
        f"## {title}", *(plot.markdown(page) for plot in plots), rates,
        "\n".join(f"- {line}" for line in where),
        markdown.folded("Command", markdown.code(facts.command), "info"),
    ]), plots
