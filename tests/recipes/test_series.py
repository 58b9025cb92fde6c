"""Tests of series: one file describes an experiment at several sizes; a run has one size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from refusals import refused
from samples import CARD_FILE, GOOD
from trimaran.errors import UsageError
from trimaran.inventory import catalog
from trimaran.recipes import library
from trimaran.verdict.metrics import judge_metrics

NAME = "resnet-imagenet/cpu-smoke"


def expected(value: float, **more: Any) -> list[dict[str, Any]]:
    return [{**GOOD["expected"][0], "value": value, **more}]


SERIES: dict[str, Any] = {
    **{key: value for key, value in GOOD.items() if key != "expected"},
    "resources": {**GOOD["resources"], "tasks_per_node": 2},
    "launcher": "mpirun",
    "env": {"A": "1"},
    "series": {"over": "ranks", "points": {
        1: {"launcher": "none", "args": {"epochs": 9}, "expected": expected(80)},
        2: {"expected": expected(81), "env": {"A": "2"}},
        4: {"launcher": "srun", "resources": {"walltime": "01:00:00"}, "expected": expected(82)},
    }},
}


def write(checkout: Path, content: dict[str, Any]) -> Path:
    path = checkout / f"recipes/{NAME}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


EFFICIENCY = {"over": 1, "value": 0.9, "lower": -0.1, "source": "A guide (2019)"}


def with_efficiency(**more: Any) -> dict[str, Any]:
    points = SERIES["series"]["points"]
    last = {**points[4], "efficiency": {**EFFICIENCY, **more}}
    return {**SERIES, "series": {**SERIES["series"], "points": {**points, 4: last}}}


def test_a_point_has_its_published_efficiency(checkout: Path) -> None:
    write(checkout, with_efficiency())
    found = library.load(f"{NAME}@4").recipe.efficiency
    assert found is not None
    assert (found.over, found.value) == (1, 0.9)
    assert found.lowest == pytest.approx(0.81)
    assert library.load(f"{NAME}@2").recipe.efficiency is None


@pytest.mark.parametrize("over", [3, 4])
def test_an_efficiency_is_over_a_smaller_point(checkout: Path, over: int) -> None:
    path = write(checkout, with_efficiency(over=over))
    with refused("file-invalid", path, f"series.points.4.efficiency.over: {over}"):
        library.load(f"{NAME}@4")


@pytest.mark.parametrize("recipe", [SERIES, GOOD])
def test_an_efficiency_belongs_to_a_point(checkout: Path, recipe: dict[str, Any]) -> None:
    path = write(checkout, {**recipe, "efficiency": EFFICIENCY})
    with refused("file-invalid", path, "efficiency"):
        library.load(NAME)


@pytest.mark.parametrize(
    ("point", "nodes", "tasks", "epochs", "value"), [(1, 1, 1, 9, 80), (2, 1, 2, 1, 81),
                                                     (4, 2, 2, 1, 82)],
)
def test_a_point_is_a_recipe(
    checkout: Path, point: int, nodes: int, tasks: int, epochs: int, value: int
) -> None:
    write(checkout, SERIES)
    found = library.load(f"{NAME}@{point}")
    assert found.name == f"{NAME}@{point}"
    assert (found.recipe.resources.nodes, found.recipe.resources.tasks_per_node) == (nodes, tasks)
    assert found.recipe.args == {"model": "resnet20", "epochs": epochs}
    assert [one.value for one in found.recipe.expected] == [value]
    assert found.recipe.series is None
    assert found.recipe.env == {"A": "2" if point == 2 else "1"}
    assert found.recipe.resources.walltime == ("01:00:00" if point == 4 else "00:10:00")


def test_a_point_over_nodes_has_all_tasks_of_each(checkout: Path) -> None:
    write(checkout, {**SERIES, "launcher": "srun", "series": {
        "over": "nodes", "points": {3: {"expected": expected(80)}},
    }})
    resources = library.load(f"{NAME}@3").recipe.resources
    assert (resources.nodes, resources.tasks_per_node) == (3, 2)


def test_a_point_over_gpus_has_them_in_each_rank(checkout: Path) -> None:
    """In a series over GPUs, each run has one rank with all GPUs, as some strategies require."""
    write(checkout, {
        **SERIES, "resources": GOOD["resources"], "launcher": "none",
        "series": {"over": "gpus", "points": {1: {"expected": expected(80)}, 4: {"expected": []}}},
    })
    resources = library.load(f"{NAME}@4").recipe.resources
    assert (resources.nodes, resources.tasks_per_node) == (1, 1)
    assert {resources.gpus_per_task, resources.gpus_per_node, resources.devices_per_node} == {4}


def test_a_point_without_a_reference_says_so(checkout: Path) -> None:
    """A size without a published value has the verdict NO REFERENCE; it can still be run."""
    write(checkout, {**SERIES, "series": {"over": "ranks", "points": {
        2: {"expected": expected(81)}, 4: {"launcher": "srun", "expected": []},
    }}})
    recipe = library.load(f"{NAME}@4").recipe
    verdict = judge_metrics(recipe, CARD_FILE.card, [], changed=[], unlike=[])
    assert (recipe.expected, verdict.outcome) == ([], "NO REFERENCE")


@pytest.mark.parametrize("name", [NAME, f"{NAME}@3", f"{NAME}@"])
def test_without_a_point_of_it_the_points_are_named(checkout: Path, name: str) -> None:
    write(checkout, SERIES)
    with refused("point-unknown", "ranks: 1, 2, 4", kind=UsageError) as caught:
        library.load(name)
    assert f"{NAME}@1" in str(caught.value.hint)


def test_what_is_no_series_has_no_points(checkout: Path) -> None:
    write(checkout, GOOD)
    with refused("point-unknown", NAME, "point 4", kind=UsageError):
        library.load(f"{NAME}@4")


def test_a_series_is_listed_once_and_shown_with_its_points(checkout: Path) -> None:
    write(checkout, SERIES)
    assert catalog.table("recipes") == [{"name": NAME, "summary": "A test. @1 @2 @4"}]
    assert [row["points"] for row in catalog.complete("recipes")] == [[1, 2, 4]]
    assert list(catalog.details("recipes", NAME)["series"]["points"]) == ["1", "2", "4"]
    assert catalog.details("recipes", f"{NAME}@4")["resources"]["nodes"] == 2


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({3: {"expected": expected(80)}}, r"series\.points: 3 ranks .* 2 ranks"),
        ({1: {"expected": expected(80)}}, r"points\.1: launcher: 'mpirun' .* 1 "),
        ({2: {}}, r"series\.points\.2\.expected: is missing"),
        ({2: {"expected": expected(80), "resources": {"nodes": 2}}},
         r"series\.points\.2\.resources\.nodes: "),
        ({2: {"expected": expected(80, metric="top")}}, r"points\.2\.expected\.0\.metric: "),
        ({2: {"expected": expected(80, at="epoch-0")}}, r"points\.2\.expected\.0\.at: "),
        ({0: {"expected": expected(80)}}, r"series\.points\.0"),
    ],
)
def test_faults_of_a_point_are_named(checkout: Path, points: Any, message: str) -> None:
    write(checkout, {**SERIES, "series": {"over": "ranks", "points": points}})
    with pytest.raises(UsageError, match=message):
        library.load(f"{NAME}@2")


def test_an_argument_of_a_point_is_refused_at_its_line(checkout: Path) -> None:
    options = Path(__file__).parents[2] / "apps/resnet-imagenet/options.json"
    (checkout / "apps/resnet-imagenet/options.json").write_text(options.read_text())
    points = {1: {"launcher": "none", "args": {"epochs": 0}, "expected": expected(80)}}
    path = write(checkout, {**SERIES, "series": {"over": "ranks", "points": points}})
    with pytest.raises(UsageError) as caught:
        library.load(f"{NAME}@1")
    lines = path.read_text().splitlines()
    line = max(n for n, text in enumerate(lines, 1) if "epochs:" in text)
    assert caught.value.message.startswith(f"{path}:{line}: series.points.1.args.epochs: ")
