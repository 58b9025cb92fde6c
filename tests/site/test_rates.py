"""Test plots that compare rates and speed-ups of runs in evidence with published values."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from pathlib import Path
from statistics import median

import pytest

from generator import rates, scaling
from generator import sources as everything
from generator.measured import rates_of
from generator.plots import Lines, Plot
from trimaran import paths
from trimaran.evidence.content import sealed
from trimaran.report.rows import Table

RESULTS = "site/results"
PATTERN = f"{RESULTS}/resnet-imagenet/cpu-2node-smoke/2026-11-24-epyc-avx512-2core-seed17.json"
SERIES = "resnet-imagenet/v100x1-horovod-scaling"
SINGLE = "resnet-imagenet/v100x1-throughput"


@pytest.fixture
def root(own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the repository, to whose evidence a test may add files."""
    source = paths.repository()
    for folder, left_out in (("", "site"), ("site", "results")):
        (own_place / folder).mkdir(exist_ok=True)
        for path in (source / folder).iterdir():
            if path.name != left_out:
                (own_place / folder / path.name).symlink_to(path)
    shutil.copytree(source / RESULTS, own_place / RESULTS)
    monkeypatch.setenv("TRIMARAN_ROOT", str(own_place))
    return own_place


def add(root: Path, name: str, rate: float, host: str, expected: float | None = None) -> str:
    """Write the evidence of a run with one V100 per node; return the path of the file."""
    content = json.loads((root / PATTERN).read_text())
    point = name.partition("@")[2]
    content["run"]["recipe"] |= {"name": name, "changed": {}}
    machine = content["run"]["host"] | {"accelerators": ["Tesla V100-SXM2-16GB"]}
    content["run"] |= {"host": machine, "nodes": [machine] * (int(point or 1) - 1)}
    row = content["verdict"]["rows"][-1] | {"measured": rate, "required": True}
    if expected is not None:
        row |= {"expected": expected, "low": expected * 0.95, "outcome": "PASS"}
    outcome = row["outcome"]
    content |= {"verdict": content["verdict"] | {"rows": [row], "outcome": outcome}, "curves": []}
    place = f"{RESULTS}/{name.partition('@')[0]}/2026-11-24-{host}.json"
    (root / place).parent.mkdir(exist_ok=True)
    (root / place).write_text(json.dumps(sealed(content)))
    return place


def lines(plot: Plot) -> dict[str, list[tuple[int, float]]]:
    """Return label -> (devices, value) of the lines in a plot."""
    assert isinstance(plot.drawing, Lines)
    return {line.label: [(point.step, point.value) for point in line.points]
            for line in plot.drawing.panel.lines}


def dots(plot: Plot) -> dict[str, list[float]]:
    """Return the plotted values: name of a row -> values of its dots."""
    assert isinstance(plot.drawing, Table)
    return {row.name: [dot.value for dot in row.dots] for row in plot.drawing.rows}


def table(plot: Plot) -> list[dict[str, str]]:
    """Return the rows of the CSV file of a plot."""
    return list(csv.DictReader(io.StringIO(plot._csv())))


def test_a_measured_point_of_a_series_stands_beside_the_published_ones(root: Path) -> None:
    places = [add(root, f"{SERIES}@2", rate, f"dgx-{rate}", 632.8) for rate in (640, 650, 601.2)]
    plot = scaling.speedups(everything.read(), efficiency=True)
    drawn = lines(plot)
    assert [devices for devices, _ in drawn[f"{SERIES}, published"]] == [1, 2]
    measured = f"{SERIES}, measured on Tesla V100-SXM2-16GB"
    assert drawn[measured] == [(2, pytest.approx(100 * 320 / 334))]
    times = lines(scaling.speedups(everything.read(), efficiency=False))
    assert times[measured] == [(2, pytest.approx(640 / 334))]
    [row] = [row for row in table(plot) if row["numbers"].startswith("measured")]
    assert (row["rate"], row["unit"], row["speed-up"], row["efficiency"], row["against"]) == (
        "640", "img/s", "1.92", "95.8%", "published, 1")
    assert "median of 3 runs on 2 nodes, each 1 x Tesla V100-SXM2-16GB, 2026-11-24" in row["source"]
    shown = plot.markdown("results/scaling.md")
    for place in places:
        assert place in row["source"]
        assert f"[{Path(place).stem}](../files/{place})" in shown

    [own_page] = scaling.scaling_of(everything.read().recipes[SERIES])
    drawn = lines(own_page)
    assert drawn["measured on Tesla V100-SXM2-16GB"] == [(2, 640)]
    assert drawn["perfect scaling"] == [(1, 334), (2, 668)]
    assert own_page.head[1] == "GPUs:"
    assert isinstance(own_page.drawing, Lines)
    assert own_page.drawing.unit == "GPUs"
    assert "on 1 to 2 GPUs," in own_page.alternative
    assert own_page.rows[2][:3] == ["measured on Tesla V100-SXM2-16GB", 2, "640"]


def test_sizes_of_one_machine_are_against_its_own_smallest(root: Path) -> None:
    add(root, f"{SERIES}@1", 330, "dgx-1", 334)
    add(root, f"{SERIES}@2", 627, "dgx-2", 632.8)
    rows = [row for row in table(scaling.speedups(everything.read(), efficiency=False))
            if row["numbers"].startswith("measured")]
    heads = ("GPUs or ranks", "speed-up", "efficiency", "against")
    assert [tuple(row[head] for head in heads) for row in rows] == [
        ("1", "1.00", "100.0%", "1"), ("2", "1.90", "95.0%", "1")]


@pytest.mark.parametrize(("expected", "label"), [
    (1200.0, "1 x V100, fp16, 2026-11-24"),
    (None, "1 x Tesla V100-SXM2-16GB, fp16, 2026-11-24"),
])
def test_a_run_of_resnet_50_stands_beside_what_its_recipe_expects(
    root: Path, expected: float | None, label: str
) -> None:
    """The plot shows a run of ResNet-50 next to the published value that its recipe expects.

    If its throughput was not judged, because the machine is not the recipe's target, the label
    names the GPU of the machine.
    """
    place = add(root, SINGLE, 1190.4, "dgx", expected)
    plot = rates.throughput(everything.read())
    rows = [row for row in table(plot) if row["recipe"] == f"`{SINGLE}`"]
    assert [(row["img/s"], row["number"]) for row in rows] == [
        ("1,200", "published"), ("1,190.4", "measured here")]
    assert rows[1]["hardware, precision"] == label
    assert rows[1]["source"].endswith(f"2026-11-24: {place}")
    assert dots(plot)[label] == [1190.4]
    assert f"(../files/{place})" in plot.markdown("results/throughput.md")


def test_every_run_in_evidence_is_drawn_that_has_a_rate() -> None:
    sources = everything.read()
    plot = rates.ran(sources)
    drawn = dots(plot).keys()
    assert {f"resnet-imagenet/{name}" for name in (
        "cpu-quickstart", "cpu-2core-2ranks-smoke", "cpu-2core-2ranks-horovod-smoke",
        "cpu-2node-smoke")} <= drawn
    runs = [piece.path for one in sources.standings.values() for piece in one.own_runs()
            if piece.content.row("throughput")]
    assert sum(int(row["runs"]) for row in table(plot)) == len(runs) > 30
    for path in runs:
        assert f"(../files/{path})" in plot.markdown("results/throughput.md")


def test_the_median_is_of_one_machine_and_day_and_of_the_recipe_unchanged() -> None:
    one = everything.read().standings["resnet-imagenet/cpu-quickstart"]
    groups = rates_of(one)
    assert len({(found.machine, found.day) for found in groups}) == len(groups) > 2
    for found in groups:
        own = [piece.content.row("throughput") for piece in one.own_runs()
               if piece.content.day == found.day and piece.content.run.machine == found.machine]
        assert found.rate == median(row.measured or 0 for row in own if row)
    changed = dataclasses.replace(one, others={
        piece.content.run.recipe.sha256: "another experiment" for piece in one.runs})
    assert rates_of(changed) == []


def test_without_evidence_only_published_numbers_are_drawn(root: Path) -> None:
    shutil.rmtree(root / RESULTS / "resnet-imagenet")
    series = scaling.series_of(everything.read())
    assert {line.origin for line in series} == {"published"}
    assert len({line.experiment for line in series if line.experiment.startswith("resnet-")}) == 6
