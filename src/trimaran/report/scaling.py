"""Report a scaling series: speed-up and efficiency of one recipe on several numbers of nodes."""

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
from trimaran.run import run_directory
from trimaran.verdict import metrics
from trimaran.verdict.metrics import Outcome

FILE = "scaling.json"
"""Name of the file that lists the runs of a series, in the folder of the series."""


class ScalingSeries(BaseModel):
    """The content of `scaling.json`; `runs` maps numbers of nodes to names of run directories."""

    recipe: str
    runs: dict[int, str] = Field(min_length=1)


class ScalingRun(BaseModel):
    """One run of a series, compared with the run on the fewest nodes.

    Attributes:
        nodes: number of nodes.
        ranks: number of ranks.
        metric: name of the rate in the app card.
        rate: value of the rate in `unit`.
        unit: unit of the rate.
        speedup: rate divided by the rate of the smallest run.
        efficiency: speed-up divided by the ratio of the numbers of nodes.
        outcome: outcome of the run's verdict.
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
    """Create the folder of a series, and return the run directory for each number of nodes.

    Raises:
        UsageError: The folder exists and is not empty.
    """
    runs = {count: f"nodes-{count:04}" for count in nodes}
    run_directory.refuse_used(directory)
    directory.mkdir(parents=True, exist_ok=True)
    series = ScalingSeries(recipe=recipe, runs=runs)
    write_atomic(directory / FILE, series.model_dump_json(indent=2) + "\n")
    return {count: directory / name for count, name in runs.items()}


def load(directory: Path) -> ScalingSeries:
    """Read the list of the runs of a series.

    Raises:
        UsageError: The file is damaged, or names a run directory that is not directly beside it.
    """
    path = directory / FILE
    try:
        series = ScalingSeries.model_validate_json(read_plain(path))
    except ValidationError as error:
        raise UsageError(f"{path} is damaged: {error.errors()[0]['msg']}",
                         code="file-invalid") from error
    for name in series.runs.values():
        if "/" in name or name in ("", ".", ".."):
            raise UsageError(f"{path} is damaged: '{name}' is not a folder beside it",
                             code="file-invalid")
    return series


def folders(directory: Path) -> dict[int, Path]:
    """Return the run directories by number of nodes, sorted; empty if `directory` is no series.

    Raises:
        UsageError: The list of runs is damaged, or names a folder in another place.
    """
    if not (directory / FILE).is_file():
        return {}
    return {nodes: directory / name for nodes, name in sorted(load(directory).runs.items())}


def write(directory: Path) -> tuple[list[ScalingRun], list[UsageError]]:
    """Judge each run of a series, and write `scaling.md` and `scaling.svg`.

    Returns:
        The completed runs, and the errors of the other runs.

    Raises:
        UsageError: No run has completed.
        RunError: The app card defines no rate, a run has not reported it, or the files of a run
            disagree.
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
    recipe = run_directory.recipe_as_run(run, record)
    metric, rate, unit = _rate(run, recipe.card)
    speedup = rate / first.rate if first else 1.0
    return ScalingRun(
        nodes=nodes, ranks=nodes * recipe.recipe.resources.tasks_per_node, metric=metric,
        rate=rate, unit=unit, speedup=speedup, outcome=judged.outcome,
        efficiency=speedup * (first.nodes if first else nodes) / nodes,
    )


def _rate(run: Path, app: CardFile) -> tuple[str, float, str]:
    name = app.card.rate
    if name is None:
        raise RunError(
            f"{app.path}: no metric is hardware_bound and better: higher", code="rate-missing",
            hint="a scaling series compares the first such metric, for example throughput",
        )
    metric, events = app.card.metrics[name], metrics.read_events(run / run_directory.METRICS)
    for when in ("median-after-epoch-1", "median-after-epoch-0"):
        value = metrics.measure(events, metric, when)
        if value is not None and value > 0:
            return name, value, metric.unit
    raise RunError(f"{run / run_directory.METRICS} has no value of {name} to compare",
                   code="rate-missing", hint="run the recipe again with more steps")


def speedup(points: Sequence[ScalingRun]) -> Chart:
    """Return a chart of the measured and the linear speed-up over the number of nodes."""
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
        "series": series, "points": points, "missing": [str(error) for error in missing],
    })
    write_atomic(directory / "scaling.md", text)
