"""The arguments of every recipe are options of the app, with values that it takes."""

from pathlib import Path

import pytest
import yaml

from resnet_imagenet.__main__ import parser
from resnet_imagenet.settings import TrainSettings
from trainkit import options

RECIPES = sorted((Path(__file__).parents[3] / "recipes/resnet-imagenet").glob("*.yaml"))


def settings(recipe: Path) -> TrainSettings:
    """Return the settings that `trimaran run` would give the app."""
    words = []
    for key, value in yaml.safe_load(recipe.read_text())["args"].items():
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        else:
            words.append(f"--{key}={value}")
    parsed = parser().parse_args(["train", "--data=/data", "--out=/out", *words])
    return options.collect(TrainSettings, parsed)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_arguments_of_a_recipe_are_accepted(recipe: Path) -> None:
    settings(recipe).check()


def test_the_run_on_448_nodes_has_its_published_arguments() -> None:
    """Codreanu et al., arXiv:1711.04291."""
    (recipe,) = (path for path in RECIPES if path.stem == "skx8160-convergence")
    resources = yaml.safe_load(recipe.read_text())["resources"]
    ranks = resources["nodes"] * resources["tasks_per_node"]
    found = settings(recipe)
    assert ranks * found.batch_size_per_rank == 14_336
    assert (found.base_lr, found.warmup_steps, found.warmup_lr) == (4.8, 446, 0.1)
    assert (found.steps, found.schedule, found.power) == (8040, "polynomial", 1.0)
    assert (found.weight_decay, found.momentum, found.bn_momentum) == (5e-5, 0.9, 0.05)
