"""Generate the page that compares the planner with published results."""

from __future__ import annotations

from generator import markdown
from generator.pages import Page, fill
from generator.plots import Plot
from trimaran import paths
from trimaran.plan import pairs, validation
from trimaran.plan.validation import Compared, Series
from trimaran.report.rows import Dot, Row, Table

PLACE = "results/predictions.md"

HEAD = ("series and sources", "devices:", "published:", "predicted:", "error:")


FOLDER = paths.repository() / "site/results/benchmarks"

IDLE, BUSY = 0.3, 0.03
"""Limits above which a measurement counts as preliminary (benchmarks/README.md).

The limits are the load average before the measurement, and the share of the cores that other
processes use during the measurement.
"""

PLANNED = (
    ("resnet-imagenet/resnet18", "DDP"), ("resnet-imagenet/resnet50", "DDP"),
    ("resnet-imagenet/resnet18", "Horovod"), ("resnet-imagenet/resnet50", "Horovod"),
    ("chexnet/mobilenetv2@128", "Horovod"),
)
"""Networks and strategies that are shown as not measured as long as there is no evidence."""

PAIR_HEAD = ("network", "strategy", "one rank:", "two ranks:", "predicted:", "error:",
             "predicted from a rank beside another:", "error:")


def page() -> Page:
    """Return the page: mean error, a plot of all errors, and tables with the sources."""
    points = validation.table()
    worst = max(points, key=lambda one: abs(one.error))
    plot = _plot(points)
    text = fill(
        "predictions.md.j2", PLACE, mean=f"{validation.mean_error(points):.1%}",
        count=len(points), series=len({one.series.name for one in points}),
        worst=f"{worst.error:+.0%} ({worst.series.name}, {worst.devices} devices)",
        rest=f"{max(abs(one.error) for one in points if one is not worst):.0%}",
        plot=plot.markdown(PLACE), table=markdown.table(HEAD, [_cells(one) for one in points]),
        measured=_measured(),
        notes="\n".join(f"- {note}" for one in validation.load() for note in _notes(one)),
    )
    return Page(PLACE, text, "Predictions", plots=(plot,))


def _measured() -> str:
    """Return comparisons of one rank with two ranks: a table for each file of evidence."""
    parts = []
    for path in sorted(FOLDER.glob(f"*-{pairs.NAME}.json")):
        content, found = pairs.read(path)
        machine, settings = content["machine"], content["settings"]
        rows = [[
            one.network, one.how.removeprefix("two ranks, "), f"{one.alone:.3g} img/s",
            f"{one.measured:.3g} img/s", f"{one.predicted:.3g} img/s", f"{one.error:+.0%}",
            f"{one.beside_predicted:.3g} img/s", f"{one.beside_error:+.0%}",
        ] for one in found]
        busy = machine["load_before"] > IDLE or machine["others"] > BUSY
        first = (f" A first look: others used {machine['others']:.0%} of the cores meanwhile, and"
                 f" the load average before was {machine['load_before']:g}." if busy else "")
        missing = " ".join(f"Not measured: {text}." for text in content["not_measured"])
        parts.append(
            f"{machine['date'][:10]}, {machine['processor']}, medians of {settings['rounds']}"
            f" rounds, `{machine['command']}`.{first} {missing}\n\n"
            + markdown.table(PAIR_HEAD, rows))
    rows = [[*pair, *["not measured"] * (len(PAIR_HEAD) - 2)] for pair in PLANNED]
    return "\n\n".join(parts) or markdown.table(PAIR_HEAD, rows)


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
