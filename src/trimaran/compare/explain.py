"""Express a comparison as sentences and tables, and write it as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trimaran import __version__
from trimaran.compare import noise, variant_tables
from trimaran.compare.comparison import Groups, named
from trimaran.compare.result import (
    Comparison,
    Difference,
    ExpectedEfficiency,
    Metric,
    Summary,
    Variants,
)
from trimaran.files import write_atomic
from trimaran.report import charts, page
from trimaran.report import rows as row_charts
from trimaran.report.charts import Chart
from trimaran.report.page import duration
from trimaran.report.panels import Line, Panel, drawable
from trimaran.report.rows import Drawing
from trimaran.report.table import Table


def tables(comparison: Comparison) -> list[Table]:
    """Return the tables of groups, runs and metrics.

    Further tables show the steps at which runs reached a given value of a metric, the scaling, and
    the variants of the app, if the comparison contains these results.
    """
    shown = [_groups(comparison), _runs(comparison), _metrics(comparison)]
    if comparison.reached:
        shown.append(_reached(comparison))
    if comparison.scaling:
        shown.append(_scaling(comparison))
    if (found := comparison.variants) is not None:
        shown.append(Table(f"by {found.option}", variant_tables.columns(found),
                           variant_tables.rows(found)))
    return shown


def sentences(comparison: Comparison) -> list[str]:
    """Return sentences on the properties in which groups differ, and on each metric."""
    base = comparison.groups[0].name
    lines = [
        f"{group.name} differs from {base} in: {'; '.join(group.unlike)}."
        for group in comparison.groups if group.unlike
    ]
    for metric in comparison.metrics:
        by_outcome: dict[str, list[Difference]] = {}
        for one in metric.differences:
            by_outcome.setdefault(one.outcome, []).append(one)
        for outcome, alike in by_outcome.items():
            if outcome in _LOUD or (len(alike) == 1 and outcome != "no difference"):
                lines += [_sentence(metric, one, base) for one in alike]
            else:
                lines.append(_together(metric, alike, base))
    return lines


_LOUD = ("more than noise", "more than noise within the runs")
"""Outcomes of a comparison for which each group of runs gets its own sentence in the text.

For any outcome that is not listed here, all groups with this outcome share one sentence.
"""

_OUTCOMES = {
    "within noise": "which is within the noise",
    "more than noise": "which is more than the noise",
    "more than noise within the runs":
        "which is more than the fluctuation within the two runs; the scatter between repeated runs"
        " is not known",
    "not known": "but these runs do not show whether this is more than the noise",
}


def _sentence(metric: Metric, one: Difference, base: str) -> str:
    way = "higher" if one.value > 0 else "lower"
    return (f"{metric.metric}: {one.group} is {_size(metric, abs(one.value))}"
            f"{_percent(metric, one)} {way} than {base}, {_OUTCOMES[one.outcome]}.")


def _together(metric: Metric, alike: Sequence[Difference], base: str) -> str:
    groups, outcome = ", ".join(one.group for one in alike), alike[0].outcome
    if outcome == "no difference":
        return f"{metric.metric}: no difference between {groups} and {base}."
    most = _size(metric, max(abs(one.value) for one in alike))
    return f"{metric.metric}: {groups} differ from {base} by at most {most}, {_OUTCOMES[outcome]}."


def _size(metric: Metric, value: float, sign: str = "") -> str:
    """Return a difference as text with its unit: `points` if the metric is in percent."""
    unit = "points" if metric.unit == "%" else metric.unit
    return f"{value:{sign},.{metric.digits}f} {unit}".rstrip()


def _percent(metric: Metric, one: Difference, sign: str = "") -> str:
    """Return a difference in percent of the baseline, as text.

    Without `sign`, the text has the absolute value. The text is empty if the metric is in percent,
    or if the baseline is 0.
    """
    if one.percent is None or metric.unit == "%":
        return ""
    percent = one.percent if sign else abs(one.percent)
    return f" ({percent:{sign}.1f} %)"


def _groups(comparison: Comparison) -> Table:
    columns = ["group", "runs", "recipe", "arguments", "machine", "ranks", "image"]
    return Table("groups: runs that differ only by chance", columns, [
        [group.name, str(len(group.runs)), group.recipe, group.arguments, group.machine,
         "-" if group.ranks is None else str(group.ranks), group.image]
        for group in comparison.groups
    ])


def _runs(comparison: Comparison) -> Table:
    return Table("runs", ["run", "source", "changed", "started", "verdict"], [
        [run.name, run.source,
         " ".join(f"{key}={value}" for key, value in run.changed.items()) or "-",
         run.started, run.verdict]
        for run in comparison.runs
    ])


def _metrics(comparison: Comparison) -> Table:
    base = comparison.groups[0].name
    rows = []
    for metric in comparison.metrics:
        differences = {one.group: one for one in metric.differences}
        for summary in metric.groups:
            first = [f"{metric.metric} ({metric.at})", summary.group, _summary(metric, summary)]
            rows.append(first + _against(metric, differences.get(summary.group)))
    columns = ["metric", "group", "value", f"less {base}", f"{noise.CONFIDENT} interval", "judged"]
    return Table("metrics", columns, rows)


def _summary(metric: Metric, summary: Summary) -> str:
    mean = f"{summary.mean:,.{metric.digits}f} {metric.unit}".rstrip()
    if summary.deviation is None:
        return mean
    spread = f"{summary.deviation:,.{metric.digits}f}"
    return f"{mean}, deviation {spread}, {len(summary.values)} runs"


def _against(metric: Metric, one: Difference | None) -> list[str]:
    if one is None:
        return ["-", "-", "-"]
    interval = "-" if one.low is None or one.high is None else (
        f"{one.low:+,.{metric.digits}f} to {_size(metric, one.high, '+')}"
    )
    difference = _size(metric, one.value, "+") + _percent(metric, one, "+")
    return [difference, interval, one.outcome]


def _reached(comparison: Comparison) -> Table:
    rows = [
        [f"{reach.metric} {reach.level:,.{reach.digits}f} {reach.unit}".rstrip(), arrival.run,
         "-" if arrival.step is None else f"{arrival.step:,}",
         "-" if arrival.seconds is None else duration(arrival.seconds)]
        for reach in comparison.reached for arrival in reach.runs
    ]
    return Table("first evaluation that reached it", ["level", "run", "step", "after"], rows)


def _scaling(comparison: Comparison) -> Table:
    columns = ["group", "nodes", "ranks", "devices", comparison.scaling[0].metric, "speed-up",
               "efficiency"]
    rows = [
        [one.group, str(one.nodes), str(one.ranks), str(one.devices),
         f"{one.rate:,.{one.digits}f} {one.unit}", f"{one.speedup:.2f}",
         f"{100 * one.efficiency:.1f} %"]
        for one in comparison.scaling
    ]
    if any(one.expected for one in comparison.scaling):
        columns += ["expected", "verdict"]
        for row, one in zip(rows, comparison.scaling, strict=True):
            row += _expected(one.expected)
    return Table("scaling", columns, rows)


def _expected(one: ExpectedEfficiency | None) -> list[str]:
    if one is None:
        return ["-", "-"]
    measured = "" if one.measured is None else f": {100 * one.measured:.1f} %"
    return [f">= {100 * one.lowest:.1f} % of {one.over}{measured} ({100 * one.value:g} %:"
            f" {one.source})", one.outcome]


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
        "sentences": sentences(comparison),
        "tables": tables(comparison), "charts": charts.charts(list(_panels(groups))),
        "drawings": [*_drawings(comparison.variants)] if comparison.variants else [],
    }
    return page.render("compare.html.j2", values, "trimaran.compare")


class Described(NamedTuple):
    """A drawing, and its description for readers who cannot see the drawing."""

    chart: Chart | Drawing
    text: str


def _drawings(variants: Variants) -> Iterator[Described]:
    """Yield the drawings that compare the variants of an app.

    Two drawings show the metric over epochs and over time; the third one shows the duration of an
    epoch.
    """
    if (panel := variant_tables.panel(variants)) is not None:
        for over in variant_tables.OVER:
            drawn = charts.chart(panel, over.by, over.unit)
            yield Described(drawn, drawn.text)
    if (times := variant_tables.times(variants)) is not None:
        yield Described(row_charts.drawing(times, charts.WIDTH), variant_tables.described(times))


def _panels(groups: Groups) -> Iterator[Panel]:
    """Yield a panel with the curves of each metric; all runs of a group have the same colour."""
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
