"""The arguments of every recipe are options of the app, with values that the app accepts."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from resnet_imagenet import method
from resnet_imagenet.__main__ import COMMANDS
from resnet_imagenet.settings import TrainSettings
from trainkit import commands, options

RECIPES = sorted((Path(__file__).parents[3] / "recipes/resnet-imagenet").glob("*.yaml"))


def points(recipe: Path) -> dict[int | None, Any]:
    """Return number -> entry of each run of a series; for any other recipe {None: {}}."""
    series = yaml.safe_load(recipe.read_text()).get("series")
    found: dict[int | None, Any] = series["points"] if series else {None: {}}
    return found


def settings(recipe: Path, point: int | None = None) -> TrainSettings:
    """Return the settings with which `trimaran run` would start the app."""
    stated = yaml.safe_load(recipe.read_text())
    words = ["--data=/data"] if stated["data"] else []
    for key, value in {**stated["args"], **points(recipe)[point].get("args", {})}.items():
        if isinstance(value, bool):
            words.append(f"--{key}" if value else f"--no-{key}")
        else:
            words.append(f"--{key}={value}")
    parser = commands.parser("resnet_imagenet", "", COMMANDS, {})
    parsed = parser.parse_args(["train", "--out=/out", *words])
    return options.collect(TrainSettings, parsed)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_arguments_of_a_recipe_are_accepted(recipe: Path) -> None:
    for point in points(recipe):
        settings(recipe, point).check()


def named(name: str) -> Path:
    """Return the path of the recipe called `name`."""
    return RECIPES[0].with_name(f"{name}.yaml")


def ranks(recipe: Path) -> int:
    """Return the world size of a recipe."""
    resources = yaml.safe_load(recipe.read_text())["resources"]
    size: int = resources["nodes"] * resources["tasks_per_node"]
    return size


def last_rate(found: TrainSettings) -> float:
    """Return the learning rate of the last step of a training."""
    last = found.max_steps or found.steps or 0
    return method.learning_rate(found, found.batch_size_per_rank, 1)(last)


def test_the_run_on_448_nodes_has_its_published_arguments() -> None:
    """Compare with Codreanu et al., arXiv:1711.04291."""
    first = settings(named("skx8160-convergence"))
    second = settings(named("skx8160-2s-collapsed-convergence"))
    assert ranks(named("skx8160-convergence")) * first.batch_size_per_rank == 14_336
    assert ranks(named("skx8160-2s-collapsed-convergence")) * second.batch_size_per_rank == 14_336
    assert (first.base_lr, first.warmup_steps, first.warmup_lr) == (4.8, 446, 0.1)
    assert (first.steps, first.schedule, first.power) == (8040, "polynomial", 1.0)
    assert (first.weight_decay, first.momentum, first.bn_momentum) == (5e-5, 0.9, 0.05)
    assert (second.base_lr, second.warmup_steps, second.steps) == (0.254, 0, 402)
    assert (second.schedule, second.power, second.weight_decay) == ("polynomial", 2.0, 1e-4)
    assert first.scale_augmentation
    assert not second.scale_augmentation


def test_the_collapsed_stage_begins_with_a_checkpoint_that_the_first_one_keeps() -> None:
    first = settings(named("skx8160-convergence"))
    step = yaml.safe_load(named("skx8160-2s-collapsed-convergence").read_text())["initial"]["step"]
    epoch = -(-1_281_167 // 14_336)
    assert first.checkpoint_every is not None
    assert first.steps is not None
    written = {*range(epoch, first.steps, epoch), first.steps}
    written |= set(range(first.checkpoint_every, first.steps, first.checkpoint_every))
    assert step in sorted(written)[-first.keep :]


def test_the_cyclic_run_goes_on_where_the_part_before_ends() -> None:
    """Five recipes form one training: each starts from the last weights of the one before it.

    Codreanu et al., arXiv:1711.04291: 72 epochs with a global batch of 4,096.
    """
    parts = [named(f"skx8160-2s-cyclic{number}-convergence") for number in range(1, 6)]
    found = [settings(part) for part in parts]
    assert [ranks(part) for part in parts] == [128] * 5
    assert [one.batch_size_per_rank for one in found] == [4096 // 128] * 5
    steps = [one.max_steps or one.steps for one in found]
    assert steps == [7800, 3750, 4750, 4750, 1560]
    for before, part, made in zip(parts[:-1], parts[1:], steps[:-1], strict=True):
        initial = yaml.safe_load(part.read_text())["initial"]
        assert initial == {"recipe": f"resnet-imagenet/{before.stem}", "step": made}
    assert last_rate(found[0]) == pytest.approx(1.02, rel=0.01)  # where the second part begins
    assert last_rate(found[1]) == pytest.approx(0.255, rel=0.01)  # and the warm-up of the third
    assert (found[4].base_lr, found[4].weight_decay) == (0.143, 2e-4)
    assert [one.scale_augmentation for one in found] == [True] * 4 + [False]


def test_the_scaling_runs_are_on_1_to_64_gpus() -> None:
    assert list(points(named("gtx1080ti-x4-scaling"))) == [1, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("gpus", [1, 4, 8, 16, 32, 64])
def test_the_scaling_runs_keep_64_images_per_gpu_and_scale_the_rate(gpus: int) -> None:
    """Compare with the PRACE Best Practice Guide - Deep Learning (2019), section 6.3."""
    found = settings(named("gtx1080ti-x4-scaling"), gpus)
    assert (found.batch_size_per_rank, found.schedule, found.milestones) == (
        64, "step", (30.0, 60.0, 80.0)
    )
    peak = method.learning_rate(found, gpus * 64, 100)(10 * 100)
    assert peak == pytest.approx(1.6 * gpus / 64)
