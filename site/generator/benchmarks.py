"""Generate a plot and a section for each benchmark against a stock baseline."""

from __future__ import annotations

from generator import markdown
from generator.evidence import Benchmark, Piece
from generator.plots import Plot, encoding


def ratios(piece: Piece[Benchmark]) -> Plot:
    """Return a plot of the ratios of a benchmark: smallest, median, largest value and goal."""
    content = piece.content
    values = [
        {"ratio": ratio.text, "least": ratio.min, "median": ratio.median, "most": ratio.max,
         "goal": ratio.goal, "outcome": "no goal" if ratio.met is None
         else "goal met" if ratio.met else "goal not met"}
        for ratio in content.ratios
    ]
    y = encoding("ratio", "nominal", axis={"title": None, "labelLimit": 340}, sort=None)
    color = encoding("outcome", "nominal", legend={"title": None}, scale={
        "domain": ["goal met", "goal not met", "no goal"]})
    asked = sum(value["goal"] is not None for value in values)
    goals = [  # no empty layer, which a screen reader would announce
        {"mark": {"type": "tick", "thickness": 2, "size": 20, "strokeDash": [2, 2]},
         "transform": [{"filter": "datum.goal != null"}], "encoding": {
            "x": {"field": "goal", "type": "quantitative"}}},
    ] if asked else []
    spec = {
        "height": {"step": 30}, "data": {"values": values}, "encoding": {"y": y},
        "layer": [
            {"mark": {"type": "rule", "strokeWidth": 3}, "encoding": {
                "x": encoding("least", "quantitative", "ratio", scale={"domainMin": 0}),
                "x2": {"field": "most"}, "color": color}},
            {"mark": {"type": "point", "filled": True, "size": 80}, "encoding": {
                "x": {"field": "median", "type": "quantitative"}, "color": color}},
            *goals,
            {"mark": {"type": "text", "align": "left", "dx": 10}, "encoding": {
                "x": {"field": "most", "type": "quantitative"},
                "text": {"field": "median", "format": ".3~g"}}},
        ],
    }
    name = piece.path.rpartition("/")[2].removesuffix(".json")
    reached = [value for value in values if value["outcome"] == "goal met"]
    return Plot(
        f"ratios-{name}", spec,
        f"{len(values)} ratios of the benchmark {content.benchmark}, each with the least, the"
        f" median and the largest of {len(content.ratios[0].values)} rounds;"
        + (f" {len(reached)} of {asked} goals are met." if asked else " None has a goal."),
        f"Line: least to largest of the rounds; point: median; dashed: the goal. Measured"
        f" {content.day} on {content.machine.machine.text}.",
        ["ratio", "least:", "median:", "largest:", "goal:", "outcome"],
        [[value["ratio"], *(f"{value[key]:.3g}" for key in ("least", "median", "most")),
          "-" if value["goal"] is None else f"{value['goal']:g}", value["outcome"]]
         for value in values],
    )


def _figure(value: float) -> str:
    """Return a rate with four significant digits, or as a whole number from 1000 on."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def part(page: str, piece: Piece[Benchmark]) -> tuple[str, list[Plot]]:
    """Return the section of one benchmark and its plots; without ratios, it has no plot."""
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
