from __future__ import annotations

import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refusals import refused
from samples import CARD, GOOD
from trimaran.errors import UsageError
from trimaran.launch.specification import Command
from trimaran.recipes.library import parse_changes, real_changes
from trimaran.recipes.recipe import Recipe
from trimaran.run.launch_spec import app_arguments, launcher
from trimaran.run.run_directory import paste_line

RECIPE = Recipe.model_validate(
    {**GOOD, "args": {"model": "resnet20", "epochs": 2, "base-lr": 0.1, "nesterov": True,
                      "synthetic": False, "seed": 17}}
)
# What a terminal shows; test_process.py has the rest.
TEXT = st.text().map(lambda text: "".join(filter(str.isprintable, text)))


def test_arguments_are_one_word_each_in_the_recipes_order() -> None:
    assert app_arguments(RECIPE, {"epochs": 1, "title": "a b"}, data="/data", out="/out") == [
        "train", "--data=/data", "--out=/out", "--model=resnet20", "--epochs=1", "--base-lr=0.1",
        "--nesterov", "--no-synthetic", "--seed=17", "--title=a b",
    ]


@pytest.mark.parametrize(("name", "words"), [
    ("torchrun", "python -m torch.distributed.run --standalone --nproc-per-node 4"),
    ("mpirun", "mpirun --oversubscribe --bind-to none -n 4 python"),
])
def test_a_launcher_starts_all_tasks_of_the_node(name: str, words: str) -> None:
    resources = {**GOOD["resources"], "tasks_per_node": 4}
    recipe = Recipe.model_validate({**GOOD, "resources": resources, "launcher": name})
    assert launcher(recipe) == words.split()
    assert launcher(RECIPE) == []


def test_changes_are_yaml_scalars() -> None:
    assert parse_changes(["a=1", "b=0.5", "c=true", "d=x=y", "e=: :"]) == {
        "a": 1, "b": 0.5, "c": True, "d": "x=y", "e": ": :",
    }


@pytest.mark.parametrize("setting", ["epochs", "=1", "data=/x", "out=/x", "a=[1, 2]", "a="])
def test_bad_changes_are_refused(setting: str) -> None:
    with refused("argument-invalid", f"--set {setting.partition('=')[0]}", kind=UsageError):
        parse_changes([setting])


@pytest.mark.parametrize(
    "text", ["9" * 5000, "0x" + "f" * 5000, "2026-02-31", "!!int zz", "[" * 5000, "a: &a [*a]"]
)
def test_a_change_beyond_all_limits_is_refused_by_its_name(text: str) -> None:
    with refused("argument-invalid", "--set seed: ", kind=UsageError) as caught:
        parse_changes([f"seed={text}"])
    assert len(caught.value.message) < 300


def test_only_what_makes_another_experiment_counts_as_a_change() -> None:
    assert real_changes(RECIPE, CARD, {"seed": 3, "epochs": 2, "base-lr": 0.2}) == ["base-lr"]


def test_a_change_of_the_recipe_takes_the_place_of_its_argument() -> None:
    words = app_arguments(RECIPE, {"nesterov": False, "base-lr": 0.2}, data="/d", out="/o")
    assert words == [
        "train", "--data=/d", "--out=/o", "--model=resnet20", "--epochs=2", "--base-lr=0.2",
        "--no-nesterov", "--no-synthetic", "--seed=17",
    ]


@pytest.mark.parametrize(("changes", "real"), [
    ({}, []),
    ({"seed": 3}, []),
    ({"model": "resnet32", "seed": 3}, ["model"]),
    ({"epochs": 1, "nesterov": False}, ["epochs", "nesterov"]),
    ({"title": "x"}, ["title"]),  # an option that the recipe does not have
])
def test_changes_are_compared_with_the_recipe(changes: dict[str, Any], real: list[str]) -> None:
    assert real_changes(RECIPE, CARD, changes) == real


@given(st.lists(TEXT, min_size=1, max_size=4), TEXT)
def test_the_pasted_line_gives_the_shell_exactly_the_words(words: list[str], value: str) -> None:
    line = paste_line(Command(("prog", *words), {"KEY": value}))
    assert shlex.split(line) == ["env", "-i", f"KEY={value}", "prog", *words]


def test_nothing_of_a_recipe_is_run_by_the_shell() -> None:
    evil = "$(touch evil); `touch evil` & touch evil | '\"\n touch evil"
    line = paste_line(Command(("/usr/bin/printf", "%s", evil), {"A": evil}))
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == evil
