"""Write a comparison as one HTML file, in the style of reports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from trimaran import __version__
from trimaran.compare import explain
from trimaran.compare.comparison import Groups, named
from trimaran.compare.result import Comparison
from trimaran.files import write_atomic
from trimaran.report import charts, page
from trimaran.report.panels import Line, Panel, drawable


def write(file: Path, comparison: Comparison, groups: Groups) -> None:
    """Write the page of a comparison.

    Raises:
        OSError: `file` cannot be written.
    """
    content = render(comparison, groups)
    try:
        write_atomic(file, content)
    except OSError as error:
        error.filename = str(file)  # not the name of the temporary file
        raise


def render(comparison: Comparison, groups: Groups) -> str:
    """Return the page as HTML, which loads nothing from the network."""
    values = {
        "version": __version__, "comparison": comparison,
        "sentences": explain.sentences(comparison),
        "tables": explain.tables(comparison), "charts": charts.charts(list(_panels(groups))),
    }
    return page.render("compare.html.j2", values, "trimaran.compare")


def _panels(groups: Groups) -> Iterator[Panel]:
    """Yield a panel for each metric with curves; the runs of a group have the same colour."""
    colors = {group: number for number, group in enumerate(groups)}
    card = next(iter(groups.values()))[0].card
    for name, metric in card.metrics.items():
        lines = [
            Line(run, points, colors[group])
            for group, run, side in named(groups)
            if (curve := side.curve(name)) and (points := drawable(curve.points))
        ]
        if lines:
            yield Panel(f"{name}, {metric.unit}".removesuffix(", "), metric.axis, lines)
