from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from samples import GOOD
from trimaran import paths
from trimaran.engines.host import Host
from trimaran.errors import UsageError
from trimaran.inventory import catalog
from trimaran.recipes import library, recipe
from trimaran.run import pipeline

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
    with pytest.raises(UsageError) as caught:
        library.load("resnet-imagenet/cpu-smok")
    assert caught.value.hint == "did you mean resnet-imagenet/cpu-smoke?"


def test_a_recipe_says_what_it_expects_if_only_that_it_is_nothing_yet(checkout: Path) -> None:
    write(checkout, {**GOOD, "expected": []})
    assert library.load("resnet-imagenet/cpu-smoke").recipe.expected == []
    write(checkout, {key: value for key, value in GOOD.items() if key != "expected"})
    with pytest.raises(UsageError, match="give 'expected' or, with one for each point, 'series'"):
        library.load("resnet-imagenet/cpu-smoke")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verb": "trian"}, "verb: resnet-imagenet has no verb 'trian'"
                            " (did you mean train?)"),
        ({"args": {"data": "/x"}}, "args: data: set by Trimaran, remove it"),
        ({"args": {"initial": "/x"}}, "args: initial: set by Trimaran, remove it"),
        (
            {"initial": {"recipe": "resnet-imagenet/no-such", "step": 5}},
            "initial: unknown recipe 'resnet-imagenet/no-such'",
        ),
        ({"initial": {"recipe": "resnet-imagenet/cpu-smoke", "step": 0}}, "initial.step"),
        ({"args": {"a b": 1}}, "args.a b"),
        ({"env": {"A-B": "1"}}, "env.A-B"),
        ({"env": {"A": 1}}, "env.A: Input should be a valid string (found: 1)"),
        ({"launcher": "mpirun"}, "launcher: 'mpirun' does not start 1 tasks"),
        (
            {"resources": {**GOOD["resources"], "tasks_per_node": 2}},
            "launcher: 'none' does not start 2 tasks",
        ),
        (
            {"resources": {**GOOD["resources"], "nodes": 2}, "launcher": "horovodrun"},
            "horovodrun reaches other nodes by ssh",
        ),
        (
            {"resources": {**GOOD["resources"], "nodes": 4, "min_nodes": 3}, "launcher": "srun"},
            "min_nodes: 3 is no smaller divisor of 4",
        ),
        (
            {"resources": {**GOOD["resources"], "tasks_per_node": 3, "mps": 2}, "launcher": "srun"},
            "mps: 3 tasks with gpus_per_task 0 do not share GPUs by 2",
        ),
        ({"surprise": 1}, "surprise: unknown key (allowed: schema, summary, app"),
        ({"data": {}}, "data: resnet-imagenet reads one data set(s), here are 0"),
        ({"target": "cpu-2cores"}, "target: there is no target 'cpu-2cores' (did you mean"
                                   " cpu-2core?)"),
        ({"data": {"fashion-minst": GOOD["data"]["fashion-mnist"]}},
         "data.fashion-minst: there is no such data set (did you mean fashion-mnist?)"),
    ],
)
def test_faults_are_refused(checkout: Path, change: dict[str, Any], message: str) -> None:
    write(checkout, {**GOOD, **change})
    with pytest.raises(UsageError) as caught:
        library.load("resnet-imagenet/cpu-smoke")
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"source": None}, "give exactly one of 'source'"),
        ({"lower": None}, "expected.0.lower: is missing: val_top1 is the better the higher"),
        ({"metric": "val_top"}, "expected.0.metric: resnet-imagenet has no metric 'val_top'"
                                " (did you mean val_top5 or val_top1"),
        ({"metric": "val_loss", "unit": ""},
         "expected.0.upper: is missing: val_loss is the better the lower"),
        ({"lower": 0.1}, "Input should be less than or equal to 0"),
        ({"lower": -5}, "expected.0.lower: Input should be greater than -1"),
        ({"lower": -1}, "expected.0.lower: Input should be greater than -1"),
        ({"lower": math.nan}, "expected.0.lower: Input should be a finite number"),
        ({"upper": math.inf}, "expected.0.upper: Input should be a finite number"),
        ({"value": math.nan}, "expected.0.value: Input should be a finite number"),
        ({"value": -100}, "expected.0.value: -100 % cannot be"),
        ({"value": True}, "expected.0.value: Input should be a valid number"),
        ({"value": 100.1}, "expected.0.value: 100.1 % cannot be"),
        ({"source": None, "measured": {**MEASURED, "seeds": {1: 80.0, 2: 89.9}}},
         "value: 90 is not between the results of the seeds, 80 to 89.9"),
        ({"source": None, "measured": {**MEASURED, "seeds": {1: math.nan}}},
         "Input should be a finite number"),
        ({"unit": "img/s"}, "expected.0.unit: the unit of val_top1 is %"),
        ({"at": "sometimes"}, "at: String should match pattern"),
    ],
)
def test_expectations_without_source_margin_or_unit_are_refused(
    checkout: Path, change: dict[str, Any], message: str
) -> None:
    write(checkout, {**GOOD, "expected": [{**GOOD["expected"][0], **change}]})
    with pytest.raises(UsageError) as caught:
        library.load("resnet-imagenet/cpu-smoke")
    assert message in caught.value.message


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
    with pytest.raises(UsageError) as caught:
        library.load(f"resnet-imagenet/{name}")
    assert caught.value.hint == "a recipe's path is its identity"


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
    with pytest.raises(UsageError, match="'cpu-2core' does not begin with"):
        library.load(f"resnet-imagenet/{name}")


def test_a_run_on_several_nodes_is_refused_before_anything_is_made() -> None:
    request = pipeline.Request(
        recipe=library.load("resnet-imagenet/skx8160-convergence"), engine=Host(), changes={}
    )
    with pytest.raises(UsageError, match="needs 448 nodes and srun"):
        pipeline.plan(request)
