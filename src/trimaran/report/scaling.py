"""A scaling series: one recipe on more and more nodes, its speed-up and its efficiency."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from trimaran.errors import RunError, UsageError
from trimaran.files import read_plain, write_atomic
from trimaran.recipes.cards import CardFile
from trimaran.report import charts, page, report
from trimaran.report.charts import Chart
from trimaran.report.panels import Line, Panel, Point
from trimaran.run import recorded_recipe, run_directory
from trimaran.verdict import metrics_log
from trimaran.verdict.rules import Outcome

FILE = "scaling.json"
"""Makes a folder a series: which run is on how many nodes."""


class ScalingSeries(BaseModel):
    """The runs of a series: folders beside the file, by their number of nodes."""

    recipe: str
    runs: dict[int, str] = Field(min_length=1)


class ScalingRun(BaseModel):
    """One run of a series, compared with the smallest.

    `metric` is the rate that the app's card names, in `unit`. `speedup` is it over that of the
    smallest run, `efficiency` the share of the speed-up that so many times its nodes could give
    at the most.
    """

    nodes: int
    ranks: int
    metric: str
    rate: float
    unit: str
    speedup: float
    efficiency: float
    outcome: Outcome


def begin(directory: Path, recipe: str, nodes: list[int]) -> dict[int, Path]:
    """Make the folder of a series, and return where each of its runs shall be.

    Raises:
        UsageError: the folder is there and not empty.
    """
    runs = {count: f"nodes-{count:04}" for count in nodes}
    run_directory.refuse_used(directory)
    directory.mkdir(parents=True, exist_ok=True)
    series = ScalingSeries(recipe=recipe, runs=runs)
    write_atomic(directory / FILE, series.model_dump_json(indent=2) + "\n")
    return {count: directory / name for count, name in runs.items()}


def load(directory: Path) -> ScalingSeries:
    """Read which runs a series has.

    Raises:
        UsageError: its file is damaged, or names a folder elsewhere.
    """
    path = directory / FILE
    try:
        series = ScalingSeries.model_validate_json(read_plain(path))
    except ValidationError as error:
        raise UsageError(f"{path} is damaged: {error.errors()[0]['msg']}") from error
    for name in series.runs.values():
        if "/" in name or name in ("", ".", ".."):
            raise UsageError(f"{path} is damaged: '{name}' is no folder beside it")
    return series


def folders(directory: Path) -> dict[int, Path]:
    """Return where the runs of a series are, by their nodes; nothing where it is no series.

    Raises:
        UsageError: as `load`.
    """
    if not (directory / FILE).is_file():
        return {}
    return {nodes: directory / name for nodes, name in sorted(load(directory).runs.items())}


def write(directory: Path) -> tuple[list[ScalingRun], list[UsageError]]:
    """Judge each run of a series, and write `scaling.md` and `scaling.svg`.

    Returns:
        The runs that have completed, and why the others cannot be judged.

    Raises:
        UsageError: none has completed.
        RunError: the app has no rate, one has not reported it, or its files disagree.
    """
    series = load(directory)
    points: list[ScalingRun] = []
    missing: list[UsageError] = []
    for nodes, run in folders(directory).items():
        try:
            points.append(_point(nodes, run, points[0] if points else None))
        except UsageError as error:
            missing.append(error)
    if not points:
        raise missing[0]
    _render(directory, series, points, missing)
    return points, missing


def _point(nodes: int, run: Path, first: ScalingRun | None) -> ScalingRun:
    record, judged = report.write(run)
    recipe = recorded_recipe.recipe_as_run(run, record)
    metric, rate, unit = _rate(run, recipe.card)
    speedup = rate / first.rate if first else 1.0
    return ScalingRun(
        nodes=nodes, ranks=nodes * recipe.recipe.resources.tasks_per_node, metric=metric,
        rate=rate, unit=unit, speedup=speedup, outcome=judged.outcome,
        efficiency=speedup * (first.nodes if first else nodes) / nodes,
    )


def _rate(run: Path, app: CardFile) -> tuple[str, float, str]:
    """Return the name of the app's rate, what it was in the run, and its unit."""
    name = app.card.rate
    if name is None:
        raise RunError(
            f"{app.path}: no metric is hardware_bound and better: higher",
            hint="a scaling series is about the first one that is, such as throughput",
        )
    metric, events = app.card.metrics[name], metrics_log.read_events(run / run_directory.METRICS)
    for when in ("median-after-epoch-1", "median-after-epoch-0"):
        value = metrics_log.measure(events, metric, when)
        if value is not None and value > 0:
            return name, value, metric.unit
    raise RunError(f"the run in {run} has reported no {name}")


def speedup(points: Sequence[ScalingRun]) -> Chart:
    """Return the chart of the measured speed-up over nodes, beside the linear one."""
    first = points[0].nodes
    linear = [Point(run.nodes, 0, run.nodes / first) for run in points]
    measured = [Point(run.nodes, 0, run.speedup) for run in points]
    lines = [Line("measured", measured, 0), Line("linear", linear, 1)]
    return charts.chart(Panel("speed-up", "from-zero", lines), unit="node")


def _render(
    directory: Path, series: ScalingSeries, points: list[ScalingRun], missing: list[UsageError]
) -> None:
    write_atomic(directory / "scaling.svg", charts.picture(series.recipe, [speedup(points)]))
    text = page.render("scaling.md.j2", {
        "series": series, "points": points, "missing": [str(one) for one in missing],
    })
    write_atomic(directory / "scaling.md", text)
