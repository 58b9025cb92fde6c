"""The site's estimates of recipes are made with the arguments of these recipes."""

from __future__ import annotations

import json

import pytest

import estimates
from trimaran import paths
from trimaran.recipes import library

APP = paths.repository() / "apps/language-model"


def expected() -> dict[str, list[str]]:
    """Return the arguments of `estimate` for each training recipe of the language model.

    The result maps the name of a recipe (`NAME@POINT` for a run of a series) to the arguments.
    """
    known = json.loads((APP / "options.json").read_text())["verbs"]["estimate"]["options"]
    return {
        name if point is None else f"{name}@{point}": estimates.arguments(recipe, known)
        for name in library.files() for point, recipe in library.definition(name).variants()
        if recipe.app == APP.name and recipe.verb == "train"
    }


def test_estimates_have_the_arguments_of_the_recipes() -> None:
    committed = json.loads(estimates.path(APP.name).read_text())
    found = {name: estimate["arguments"] for name, estimate in committed.items()}
    assert found == expected(), "`make generate-apps` writes them"


@pytest.mark.parametrize("argument", ["--vocabulary=4096", "--ranks=4", "--tensor-parallel=2"])
def test_an_estimate_has_ranks_layout_and_vocabulary_of_the_recipe(argument: str) -> None:
    assert argument in expected()["language-model/cpu-2core-4ranks-3d-smoke"]


def test_an_estimate_of_a_point_has_the_ranks_of_the_point() -> None:
    assert "--ranks=128" in expected()["language-model/h100x8-96gb-llama3-8b-scaling@128"]
