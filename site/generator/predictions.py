"""Generate the page that compares the planner with published results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from generator import markdown
from generator.evidence import Benchmark, Piece
from generator.pages import Page, fill
from generator.plots import Plot
from generator.sources import Sources
from trimaran.errors import UsageError
from trimaran.plan import pairs, validation
from trimaran.plan.pairs import Pair
from trimaran.plan.validation import Compared, Series
from trimaran.report.rows import Dot, Row, Table

PLACE = "results/predictions.md"

HEAD = ("series and sources", "devices:", "published:", "predicted:", "error:")


PLANNED = (
    ("resnet-imagenet/resnet18", "DDP"), ("resnet-imagenet/resnet50", "DDP"),
    ("resnet-imagenet/resnet18", "Horovod"), ("resnet-imagenet/resnet50", "Horovod"),
    ("chexnet/mobilenetv2@128", "Horovod"),
)
"""(Network, strategy) pairs that the page lists as "not measured" until evidence exists."""

PAIR_HEAD = ("network", "strategy", "measured on", "one rank:", "two ranks:", "predicted:",
             "error:", "predicted from a rank beside another:", "error:")


def page(sources: Sources) -> Page:
    """Return the page: mean prediction error, a plot of all errors, and tables with the sources."""
    points = validation.table()
    worst = max(points, key=lambda one: abs(one.error))
    plot = _plot(points)
    text = fill(
        "predictions.md.j2", PLACE, mean=f"{validation.mean_error(points):.1%}",
        count=len(points), series=len({one.series.name for one in points}),
        worst=f"{worst.error:+.0%} ({worst.series.name}, {worst.devices} devices)",
        rest=f"{max(abs(one.error) for one in points if one is not worst):.0%}",
        plot=plot.markdown(PLACE), table=markdown.table(HEAD, [_cells(one) for one in points]),
        measured=_measured(sources.shelf.benchmarks.get(pairs.NAME, [])),
        notes="\n".join(f"- {note}" for one in validation.load() for note in _notes(one)),
    )
    return Page(PLACE, text, "Predictions", plots=(plot,))


def _measured(pieces: Sequence[Piece[Benchmark]]) -> str:
    """Return a table that compares one rank with two ranks, and notes on each measurement."""
    found = [(piece, one) for piece in pieces for one in _pairs(piece)]
    seen = {(one.network, one.strategy) for _, one in found}
    rows = [_pair_cells(piece.content, one) for piece, one in found]
    rows += [[*pair, *["not measured"] * (len(PAIR_HEAD) - 2)]
             for pair in PLANNED if pair not in seen]
    notes = "\n".join(f"- {_note(piece)}" for piece in pieces)
    return "\n\n".join(part for part in (markdown.table(PAIR_HEAD, rows), notes) if part)


def _pairs(piece: Piece[Benchmark]) -> Iterator[Pair]:
    """Yield each measured rate of two ranks in a benchmark result, with two predictions of it.

    Raises:
        UsageError: the result does not state the batch size.
    """
    batch = piece.content.settings.get("batch")
    if not isinstance(batch, int):
        raise UsageError(f"{piece.path}: settings.batch is not a whole number",
                         code="evidence-invalid", hint="run the benchmark again with --json")
    return pairs.pairs({rate.name: rate.median for rate in piece.content.rates}, batch)


def _pair_cells(content: Benchmark, one: Pair) -> list[str]:
    return [
        one.network, one.strategy, str(content.day), f"{one.alone:.3g} img/s",
        f"{one.measured:.3g} img/s", f"{one.predicted:.3g} img/s", f"{one.error:+.0%}",
        f"{one.beside_predicted:.3g} img/s", f"{one.beside_error:+.0%}",
    ]


def _note(piece: Piece[Benchmark]) -> str:
    """Return date, machine, image, load and command of a measurement."""
    content, facts = piece.content, piece.content.machine
    link = markdown.link(PLACE, f"files/{piece.path}")
    return (
        f"{markdown.moment(content.day)}, {facts.machine.text}, image {facts.image or 'none'}"
        f" (`{facts.image_digest or 'no digest'}`), medians of {content.settings['rounds']} rounds;"
        f" load average before {facts.load_before:g}, other processes used {facts.others:.1%} of"
        f" the cores. Command: `{facts.command}`. [All values]({link})."
    )


def _cells(one: Compared) -> list[str]:
    name = f"{one.series.name}<br><small>{'; '.join(one.series.sources)}</small>"
    return [name, str(one.devices), f"{one.published:,.1f} {one.series.unit}",
            f"{one.predicted:,.1f}", f"{one.error:+.1%}"]


def _notes(one: Series) -> list[str]:
    assumed = [f"{one.name}: assumed `{key}`: {reason}." for key, reason in one.assumed.items()]
    return [*assumed, *([f"{one.name}: {one.note}"] if one.note else [])]


def _plot(points: list[Compared]) -> Plot:
    rows = [
        Row(f"{one.series.name}, {one.devices}",
            [Dot(100 * one.error, f"{one.series.name}, {one.devices} devices: {one.error:+.1%}")])
        for one in points
    ]
    return Plot(
        "predictions", Table("error of the prediction, %", rows),
        f"Errors of {len(points)} predictions; the mean absolute error is"
        f" {validation.mean_error(points):.1%}.",
        "Predicted minus published value, relative to the published value.",
        ["series", "devices:", "published:", "predicted:", "error:"],
        [[one.series.name, one.devices, one.published, round(one.predicted, 1),
          f"{one.error:+.1%}"] for one in points],
    )
