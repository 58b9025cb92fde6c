"""Tests of scaling series: speed-up and efficiency of runs on several numbers of nodes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from finished import finish
from refusals import refused
from trimaran import cli
from trimaran.errors import RunError, UsageError
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.report import report, scaling
from trimaran.run import run_directory
from trimaran.run.record import RunRecord


def run(directory: Path, recipe: RecipeFile, nodes: int, speed: float) -> None:
    """Write a completed run on `nodes` nodes with the throughput `speed`."""
    finish(directory, library.on_nodes(recipe, nodes))
    path = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["key"] == "throughput":
            line["value"] = speed
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    record = json.loads((directory / "run.json").read_text())
    record["files"] = {}
    (directory / "run.json").write_text(json.dumps(record))


@pytest.fixture
def series(recipe: RecipeFile, own_place: Path) -> Path:
    folder = own_place / "series"
    places = scaling.begin(folder, recipe.name, [1, 2, 4])
    for nodes, speed in ((1, 100.0), (2, 180.0), (4, 300.0)):
        run(places[nodes], recipe, nodes, speed)
    return folder


def test_speed_up_and_efficiency_are_those_over_the_smallest(series: Path) -> None:
    points, missing = scaling.write(series)
    assert missing == []
    assert [one.nodes for one in points] == [1, 2, 4]
    assert [one.speedup for one in points] == pytest.approx([1, 1.8, 3.0])
    assert [one.efficiency for one in points] == pytest.approx([1, 0.9, 0.75])
    text = (series / "scaling.md").read_text()
    assert "| 4 | 4 | 300.0 img/s | 3.00 | 75% |" in text
    assert b"</svg>" in (series / "scaling.svg").read_bytes()


def with_speeds(directory: Path, windows: list[tuple[int, float]]) -> None:
    """Replace the throughput of a run by `windows`: pairs of epoch and throughput."""
    path = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [line for line in lines if line["key"] != "throughput"]
    told = [
        {"time_ms": 1, "key": "throughput", "value": speed,
         "metadata": {"step": 1, "epoch_num": epoch}}
        for epoch, speed in windows
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in kept[:3] + told + kept[3:]))


@pytest.mark.parametrize(("speeds", "speedups", "efficiencies"), [
    ({2: 100.0, 4: 180.0, 8: 300.0}, [1, 1.8, 3.0], [1, 0.9, 0.75]),
    ({3: 90.0, 4: 120.0}, [1, 4 / 3], [1, 1]),
    ({2: 100.0, 16: 1000.0}, [1, 10], [1, 1.25]),  # faster than the nodes can explain
])
def test_a_series_may_begin_at_several_nodes(
    speeds: dict[int, float], speedups: list[float], efficiencies: list[float],
    recipe: RecipeFile, own_place: Path,
) -> None:
    folder = own_place / "series"
    places = scaling.begin(folder, recipe.name, sorted(speeds, reverse=True))
    for nodes, speed in speeds.items():
        run(places[nodes], recipe, nodes, speed)
    points, _ = scaling.write(folder)
    assert [one.nodes for one in points] == sorted(speeds)
    assert [one.speedup for one in points] == pytest.approx(speedups)
    assert [one.efficiency for one in points] == pytest.approx(efficiencies)


def test_the_rate_is_the_median_without_the_first_epoch(series: Path) -> None:
    """The first epoch includes the start; it counts only if there is no other."""
    with_speeds(series / "nodes-0001", [(1, 5.0), (1, 5.0), (2, 80.0), (2, 120.0), (3, 100.0)])
    with_speeds(series / "nodes-0002", [(1, 150.0), (1, 170.0), (1, 900.0)])
    points, _ = scaling.write(series)
    assert [one.rate for one in points] == [100.0, 170.0, 300.0]
    assert [one.speedup for one in points] == pytest.approx([1, 1.7, 3.0])


def test_ranks_are_those_of_all_nodes(series: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = run_directory.recipe_as_run

    def several(directory: Path, record: RunRecord) -> RecipeFile:
        found = read(directory, record)
        resources = found.recipe.resources.model_copy(update={"tasks_per_node": 3})
        whole = found.recipe.model_copy(update={"resources": resources})
        return dataclasses.replace(found, recipe=whole)

    judged = {path: report.write(path) for path in scaling.folders(series).values()}
    monkeypatch.setattr(report, "write", judged.__getitem__)
    monkeypatch.setattr(run_directory, "recipe_as_run", several)
    assert [one.ranks for one in scaling.write(series)[0]] == [3, 6, 12]


def test_only_the_recipes_own_number_of_nodes_has_its_reference(series: Path) -> None:
    outcomes = {one.nodes: one.outcome for one in scaling.write(series)[0]}
    assert outcomes == {1: "PASS", 2: "NO REFERENCE", 4: "NO REFERENCE"}
    record, judged = report.write(series / "nodes-0002")
    assert record.recipe.nodes == 2
    assert judged.reasons == ["the recipe's arguments were changed (nodes)"]


def test_a_run_that_has_not_ended_is_named_below_the_others(
    recipe: RecipeFile, own_place: Path
) -> None:
    folder = own_place / "series"
    places = scaling.begin(folder, recipe.name, [1, 2, 4])
    with pytest.raises(UsageError, match="nodes-0001"):
        scaling.write(folder)
    run(places[1], recipe, 1, 100)
    run(places[4], recipe, 4, 300)
    points, [missing] = scaling.write(folder)
    assert [(one.nodes, one.speedup) for one in points] == [(1, 1.0), (4, 3.0)]
    assert "nodes-0002" in str(missing)
    assert "\nMissing: " in (folder / "scaling.md").read_text()
    done = CliRunner().invoke(cli.app, ["report", str(folder)], env={"COLUMNS": "200"})
    assert "300.0 img/s" in done.stdout
    assert isinstance(done.exception, UsageError)
    assert "1 of 3 runs" in str(done.exception)
    assert "nodes-0002" in str(done.exception)


def test_a_run_without_throughput_is_named(series: Path) -> None:
    path = series / "nodes-0002/metrics.jsonl"
    path.write_text("".join(
        line + "\n" for line in path.read_text().splitlines() if "throughput" not in line
    ))
    with refused("rate-missing", "nodes-0002", "throughput", kind=RunError):
        scaling.write(series)


@pytest.mark.parametrize("name", ["", "..", "/etc", "a/b"])
def test_a_series_names_no_folder_elsewhere(tmp_path: Path, name: str) -> None:
    (tmp_path / scaling.FILE).write_text(json.dumps({"recipe": "a/b", "runs": {1: name}}))
    with refused("file-invalid", tmp_path / scaling.FILE, f"'{name}'", kind=UsageError):
        scaling.load(tmp_path)


def test_a_damaged_series_is_named(tmp_path: Path) -> None:
    (tmp_path / scaling.FILE).write_text("{}")
    with refused("file-invalid", tmp_path / scaling.FILE, kind=UsageError):
        scaling.load(tmp_path)


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "mine").touch()
    with pytest.raises(UsageError, match=str(folder)):
        scaling.begin(folder, "a/b", [1])
    assert [path.name for path in folder.iterdir()] == ["mine"]


@pytest.mark.parametrize(("nodes", "linear"), [([1, 2, 4], [1, 2, 4]), ([2, 3, 8], [1, 1.5, 4])])
def test_a_linear_speed_up_is_over_the_nodes_of_the_first(
    nodes: list[int], linear: list[float]
) -> None:
    runs = [
        scaling.ScalingRun(nodes=count, ranks=count, metric="throughput", rate=1.0, unit="img/s",
                           speedup=0.9 * count, efficiency=0.9, outcome="PASS")
        for count in nodes
    ]
    measured, ideal = scaling.speedup(runs).curves
    assert json.loads(ideal.numbers) == [list(pair) for pair in zip(nodes, linear, strict=True)]
    assert json.loads(measured.numbers) == [[count, pytest.approx(0.9 * count)] for count in nodes]
