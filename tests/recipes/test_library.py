from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from refusals import refused
from samples import GOOD
from trimaran import paths
from trimaran.engines.host import Host
from trimaran.errors import UsageError
from trimaran.inventory import catalog
from trimaran.recipes import library, recipe
from trimaran.run import pipeline
from trimaran.run.request import Request

MEASURED = {"date": "2026-01-01", "host": "a machine", "command": "trimaran run it",
            "image_digest": None}


def write(checkout: Path, content: dict[str, Any], name: str = "cpu-smoke") -> None:
    path = checkout / f"recipes/resnet-imagenet/{name}.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(content))


def test_every_recipe_of_the_project_is_valid() -> None:
    assert "resnet-imagenet/cpu-quickstart" in library.names()
    for name in library.names():
        for point, _ in library.definition(name).variants():
            library.load(name if point is None else f"{name}@{point}")


@pytest.mark.parametrize("name", sorted(catalog.SCHEMAS))
def test_the_schemas_are_current(name: str) -> None:
    committed = (paths.repository() / name).read_text()
    assert committed == catalog.schema_text(catalog.SCHEMAS[name]), "run: make generate"


def test_schema_refuses_what_the_model_refuses() -> None:
    schema = json.loads(catalog.schema_text(recipe.Recipe))
    assert schema["additionalProperties"] is False
    assert "resources" in schema["required"]


def test_unknown_recipe_names_the_nearest(checkout: Path) -> None:
    write(checkout, GOOD)
    with refused("name-unknown", "resnet-imagenet/cpu-smok", kind=UsageError) as caught:
        library.load("resnet-imagenet/cpu-smok")
    assert "resnet-imagenet/cpu-smoke" in str(caught.value.hint)


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["c", "a", "b"]])
def test_recipes_that_start_from_each_other_are_refused(checkout: Path, names: list[str]) -> None:
    """The last recipe starts from `a`; the recipe `c` is not part of the cycle, but leads there."""
    full = [f"resnet-imagenet/cpu-2core-{name}-smoke" for name in names]
    for own, before in zip(full, [*full[1:], "resnet-imagenet/cpu-2core-a-smoke"], strict=True):
        content = {**GOOD, "initial": {"recipe": before, "step": 1}}
        write(checkout, content, own.partition("/")[2])
    cycle = " -> ".join([*full, "resnet-imagenet/cpu-2core-a-smoke"])
    with refused("file-invalid", f"{names[0]}-smoke.yaml", "initial", cycle, kind=UsageError):
        library.load(full[0])


def test_recipes_may_start_from_each_other_in_a_line(checkout: Path) -> None:
    write(checkout, GOOD)
    for own, before in (("b", "cpu"), ("c", "cpu-2core-b"), ("d", "cpu-2core-c")):
        initial = {"recipe": f"resnet-imagenet/{before}-smoke", "step": 1}
        write(checkout, {**GOOD, "initial": initial}, f"cpu-2core-{own}-smoke")
    assert library.load("resnet-imagenet/cpu-2core-d-smoke").recipe.initial is not None


def test_a_recipe_says_what_it_expects_if_only_that_it_is_nothing_yet(checkout: Path) -> None:
    write(checkout, {**GOOD, "expected": []})
    assert library.load("resnet-imagenet/cpu-smoke").recipe.expected == []
    write(checkout, {key: value for key, value in GOOD.items() if key != "expected"})
    with refused("file-invalid", "'expected'", "'series'"):
        library.load("resnet-imagenet/cpu-smoke")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verb": "trian"}, "verb: .*'trian'.*train"),
        ({"args": {"data": "/x"}}, "args: data: "),
        ({"args": {"initial": "/x"}}, "args: initial: "),
        (
            {"initial": {"recipe": "resnet-imagenet/no-such", "step": 5}},
            "initial: .*'resnet-imagenet/no-such'",
        ),
        ({"initial": {"recipe": "resnet-imagenet/cpu-smoke", "step": 0}}, r"initial\.step"),
        ({"args": {"a b": 1}}, r"args\.a b"),
        ({"env": {"A-B": "1"}}, r"env\.A-B"),
        ({"env": {"A": 1}}, r"env\.A: .*1"),
        ({"launcher": "mpirun"}, "launcher: 'mpirun' .* 1 tasks"),
        (
            {"resources": {**GOOD["resources"], "tasks_per_node": 2}},
            "launcher: 'none' .* 2 tasks",
        ),
        (
            {"resources": {**GOOD["resources"], "nodes": 2}, "launcher": "horovodrun"},
            "launcher: horovodrun .*ssh",
        ),
        (
            {"resources": {**GOOD["resources"], "nodes": 4, "min_nodes": 3}, "launcher": "srun"},
            "min_nodes: 3 .*divisor of 4",
        ),
        (
            {"resources": {**GOOD["resources"], "tasks_per_node": 3, "mps": 2}, "launcher": "srun"},
            "mps: 3 tasks .*gpus_per_task 0 .* 2",
        ),
        ({"surprise": 1}, "surprise: .*schema, summary, app"),
        ({"data": {}}, "data: .*one .* 0"),
        ({"target": "cpu-2cores"}, r"target: .*'cpu-2cores' .*cpu-2core\?"),
        ({"data": {"fashion-minst": GOOD["data"]["fashion-mnist"]}},
         r"data\.fashion-minst: .*fashion-mnist\?"),
    ],
)
def test_faults_are_refused(checkout: Path, change: dict[str, Any], message: str) -> None:
    write(checkout, {**GOOD, **change})
    with pytest.raises(UsageError, match=message):
        library.load("resnet-imagenet/cpu-smoke")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": None}, r"expected\.0: .*'source'"),
        ({"lower": None}, r"expected\.0\.lower: .*higher val_top1"),
        ({"metric": "val_top"}, r"expected\.0\.metric: .*'val_top' .*val_top5 or val_top1"),
        ({"metric": "val_loss", "unit": ""}, r"expected\.0\.upper: .*lower val_loss"),
        ({"lower": 0.1}, r"expected\.0\.lower: .* 0 "),
        ({"lower": -5}, r"expected\.0\.lower: .* -1 "),
        ({"lower": -1}, r"expected\.0\.lower: .* -1 "),
        ({"lower": math.nan}, r"expected\.0\.lower: .*finite"),
        ({"upper": math.inf}, r"expected\.0\.upper: .*finite"),
        ({"value": math.nan}, r"expected\.0\.value: .*finite"),
        ({"value": -100}, r"expected\.0\.value: -100 %"),
        ({"value": True}, r"expected\.0\.value: .*number"),
        ({"value": 100.1}, r"expected\.0\.value: 100\.1 %"),
        ({"source": None, "measured": {**MEASURED, "seeds": {1: 80.0, 2: 89.9}}},
         r"value: 90 .* 80 to 89\.9"),
        ({"source": None, "measured": {**MEASURED, "seeds": {1: math.nan}}},
         r"expected\.0\.measured\.seeds\.1: .*finite"),
        ({"unit": "img/s"}, r"expected\.0\.unit: .*val_top1 is %"),
        ({"at": "sometimes"}, r"expected\.0\.at: "),
    ],
)
def test_expectations_without_source_margin_or_unit_are_refused(
    checkout: Path, change: dict[str, Any], message: str
) -> None:
    write(checkout, {**GOOD, "expected": [{**GOOD["expected"][0], **change}]})
    with pytest.raises(UsageError, match=message):
        library.load("resnet-imagenet/cpu-smoke")


@pytest.mark.parametrize(("value", "lower", "upper", "bounds"), [
    (80.0, -0.1, None, (72.0, None)), (80.0, -0.5, 0.1, (40.0, 88.0)),
    (80.0, 0.0, 0.0, (80.0, 80.0)), (-80.0, -0.5, 0.1, (-120.0, -72.0)), (0.0, -0.5, 0.1, (0, 0)),
])
def test_margins_are_relative_to_the_value(
    value: float, lower: float, upper: float | None, bounds: tuple[float, float | None]
) -> None:
    expected = {**GOOD["expected"][0], "value": value, "lower": lower, "upper": upper}
    low, high = recipe.Expectation.model_validate(expected).bounds
    for found, wanted in zip((low, high), bounds, strict=True):
        assert found == (wanted if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize("name", ["cpu-quickstart", "gpu-smoke"])
def test_the_path_is_the_identity(checkout: Path, name: str) -> None:
    write(checkout, GOOD, name)
    with refused("recipe-misplaced", f"{name}.yaml", kind=UsageError):
        library.load(f"resnet-imagenet/{name}")


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("cpu-smoke", True),
        ("cpu-2core-smoke", True),
        ("cpu-2core-cyclic2-smoke", True),
        ("cpu-cyclic2-smoke", False),
        ("cpu-2coreb-smoke", False),
    ],
)
def test_a_variant_stands_between_the_whole_target_and_the_purpose(
    checkout: Path, name: str, fits: bool
) -> None:
    write(checkout, GOOD, name)
    if fits:
        library.load(f"resnet-imagenet/{name}")
        return
    with refused("recipe-misplaced", "target: 'cpu-2core'", kind=UsageError):
        library.load(f"resnet-imagenet/{name}")


def test_a_run_on_several_nodes_is_refused_before_anything_is_made() -> None:
    request = Request(
        recipe=library.load("resnet-imagenet/skx8160-convergence"), engine=Host(), changes={}
    )
    with pytest.raises(UsageError, match=r"448 nodes .*srun"):
        pipeline.plan(request)
