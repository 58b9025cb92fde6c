"""Generate the page that compares the planner with published results."""

from __future__ import annotations

from generator import markdown
from generator.pages import Page, fill
from generator.plots import Plot
from trimaran.plan import validation
from trimaran.plan.validation import Compared, Series
from trimaran.report.rows import Dot, Row, Table

PLACE = "results/predictions.md"

HEAD = ("series and sources", "devices:", "published:", "predicted:", "error:")


def page() -> Page:
    """Return the page: mean error, a plot of all errors, and a table with the sources."""
    points = validation.table()
    worst = max(points, key=lambda one: abs(one.error))
    plot = _plot(points)
    text = fill(
        "predictions.md.j2", PLACE, mean=f"{validation.mean_error(points):.1%}",
        count=len(points), series=len({one.series.name for one in points}),
        worst=f"{worst.error:+.0%} ({worst.series.name}, {worst.devices} devices)",
        rest=f"{max(abs(one.error) for one in points if one is not worst):.0%}",
        plot=plot.markdown(PLACE), table=markdown.table(HEAD, [_cells(one) for one in points]),
        notes="\n".join(f"- {note}" for one in validation.load() for note in _notes(one)),
    )
    return Page(PLACE, text, "Predictions", plots=(plot,))


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
