"""Tests of the key `assumed` of a recipe: values that no source states, and their reasons."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from samples import GOOD
from trimaran.cli import common
from trimaran.inventory import catalog
from trimaran.recipes import library
from trimaran.recipes.hardware import Hardware
from trimaran.recipes.recipe import Recipe

SERIES: dict[str, Any] = {
    **{key: value for key, value in GOOD.items() if key != "expected"},
    "resources": {**GOOD["resources"], "tasks_per_node": 4},
    "launcher": "srun",
    "args": {"model": "resnet20", "epochs": 1, "base-lr": 0.1},
    "series": {"over": "ranks", "points": {
        4: {"expected": GOOD["expected"], "launcher": "torchrun", "args": {"base-lr": 0.2}},
        8: {"expected": GOOD["expected"]},
    }},
}


def recipe(content: dict[str, Any], **assumed: str) -> Recipe:
    return Recipe.model_validate({**content, "assumed": assumed})


@pytest.mark.parametrize("path", [
    "args.epochs", "args", "resources.cpus_per_task", "resources.nodes", "expected",
    "expected.0.value", "data.fashion-mnist.samples.train", "launcher",
])
def test_any_value_of_a_recipe_may_be_assumed(path: str) -> None:
    assert recipe(GOOD, **{path: "why"}).assumed == {path: "why"}


@pytest.mark.parametrize("path", [
    "args.epoch", "arg", "expected.1", "expected.x", "args.epochs.1", "series", "initial", "",
])
def test_a_key_that_names_no_value_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match=f"'{path}' names no value"):
        recipe(GOOD, **{path: "why"})


def test_a_reason_is_not_empty() -> None:
    with pytest.raises(ValidationError):
        recipe(GOOD, **{"args.epochs": ""})


def test_values_are_shown_with_their_reasons_and_tables_by_their_key_only() -> None:
    found = recipe(GOOD, **{
        "args.epochs": "why", "expected": "because", "expected.0.value": "about", "launcher": "one",
    })
    assert found.assumptions() == [
        ("args.epochs: 1", "why"), ("expected", "because"), ("expected.0.value: 90", "about"),
        ("launcher: none", "one"),
    ]


def test_a_point_has_the_reasons_for_its_own_values() -> None:
    found = recipe(SERIES, **{
        "args.base-lr": "of all", "args.epochs": "one", "series": "sizes",
        "series.points.4.args.base-lr": "of four", "series.points.8.expected.0": "of eight",
    })
    assert found.at(4).assumed == {
        "args.epochs": "one", "series": "sizes", "args.base-lr": "of four",
    }
    assert found.at(4).assumptions()[2] == ("args.base-lr: 0.2", "of four")
    assert found.at(8).assumed == {
        "args.base-lr": "of all", "args.epochs": "one", "series": "sizes", "expected.0": "of eight",
    }


def test_assumed_facts_of_hardware_must_exist() -> None:
    facts = {"device": {"name": "A", "count": 2, "teraflops": {"fp32": 1}, "bandwidth": 10},
             "within": {"name": "a link", "bandwidth": 1}, "sources": ["a paper"]}
    assert Hardware.model_validate({**facts, "assumed": {"within.bandwidth": "why"}}).assumed
    with pytest.raises(ValidationError, match="'between' names no value"):
        Hardware.model_validate({**facts, "assumed": {"between": "why"}})


def test_unchecked_facts_of_hardware_must_exist_and_are_shown_with_the_target(
    checkout: Any
) -> None:
    facts = {"device": {"name": "A", "count": 2, "teraflops": {"fp32": 1}, "bandwidth": 10},
             "sources": ["a paper"]}
    with pytest.raises(ValidationError, match=r"unchecked: 'device\.watts' names no value"):
        Hardware.model_validate({**facts, "unchecked": {"device.watts": "a data sheet"}})
    whole = {"schema": 1, "summary": "A.", "node": {"architecture": "x86_64"},
             "hardware": {**facts, "unchecked": {"device.bandwidth": "a data sheet"}}}
    (checkout / "recipes/targets/one.yaml").write_text(yaml.safe_dump(whole))
    shown = json.loads(json.dumps(catalog.details("targets", "one")))
    assert shown["hardware"]["unchecked"] == {"device.bandwidth": "a data sheet"}


def test_assumptions_are_shown_with_the_recipe_and_before_a_command(
    checkout: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({**GOOD, "assumed": {"args.epochs": "nobody says"}}))
    shown = catalog.details("recipes", "resnet-imagenet/cpu-smoke")
    assert json.loads(json.dumps(shown))["assumed"] == {"args.epochs": "nobody says"}
    common.show_assumptions(library.load("resnet-imagenet/cpu-smoke").recipe)
    assert capsys.readouterr().err == "assumed: args.epochs: 1 (nobody says)\n"
