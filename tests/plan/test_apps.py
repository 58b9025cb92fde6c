"""Test the plans of all recipes of all apps, and the operation counts of their networks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refusals import refused
from trimaran import paths
from trimaran.plan import base_rate, estimates, options, prediction, situation, work
from trimaran.plan.work import Network
from trimaran.recipes import cards, library, targets

APPS = [name for name in cards.names() if cards.load(name).card.planning is not None]


def recipes() -> list[str]:
    """Return the recipes that can be planned: app, options and target contain the facts for it."""
    found = []
    for name in library.files():
        recipe = situation.first(name)
        planning = cards.load(recipe.app).card.planning
        if (planning is not None and targets.load(recipe.target).hardware is not None
                and options.plannable(recipe, planning)):
            found.append(name)
    return found


def test_all_apps_that_train_can_be_planned() -> None:
    assert {*cards.names()} - {*APPS} == {"collectives"}


@pytest.mark.parametrize("name", recipes())
def test_each_recipe_on_a_target_with_facts_has_a_plan(name: str) -> None:
    (row,) = prediction.make(situation.of(name), [1]).rows
    assert row.throughput > 0
    assert row.step.efficiency <= 1


@pytest.mark.parametrize("app", APPS)
def test_each_network_of_a_recipe_that_can_be_planned_is_described(app: str) -> None:
    planning = cards.load(app).card.planning
    assert planning is not None
    for name in library.files():
        for _, recipe in library.definition(name).variants():
            if recipe.app == app and options.plannable(recipe, planning):
                assert options.network_of(recipe, planning) in work.networks(app), name


def networks(*places: tuple[str, str]) -> list[Network]:
    return [work.network(app, name) for app, name in places]


def test_both_frameworks_describe_the_same_densenet() -> None:
    """DenseNet-121 differs between Keras and PyTorch only in the number of outputs.

    Keras's has 14 outputs, PyTorch's 1,000, each with 1,024 weights and a bias.
    """
    keras, torch = networks(("chexnet", "densenet121@224"), ("resnet-imagenet", "densenet121"))
    assert torch.flops - keras.flops == 2 * 1024 * (1000 - 14)
    assert torch.parameters - keras.parameters == 1025 * (1000 - 14)


def test_the_operations_are_those_of_the_papers() -> None:
    """Multiply-adds of a forward pass: 3.8 G for ResNet-50 v1 (arXiv:1512.03385, table 1), and
    15.5 G for VGG-16 (arXiv:1409.1556)."""
    resnet, vgg = networks(("chexnet", "resnet50@224"), ("chexnet", "vgg16@224"))
    assert resnet.flops / 2e9 == pytest.approx(3.8, rel=0.02)
    assert vgg.flops / 2e9 == pytest.approx(15.5, rel=0.01)


def test_the_parameters_of_resnets_are_those_of_kerass_documentation() -> None:
    """The numbers of parameters equal Keras's documentation, if corrected for the outputs.

    The recipes have 10 outputs, Keras's tables 1,000. For ResNet50V2, `summary` reports 25,568,360
    trained parameters; the tables have rounded numbers.
    """
    fifty, *others = networks(*(("keras-resnet", f"ResNet{layers}V2@128")
                                for layers in (50, 101, 152)))
    assert fifty.parameters + 2049 * 990 == 25_568_360
    for found, published in zip(others, (44.7e6, 60.4e6), strict=True):
        assert found.parameters + 2049 * 990 == pytest.approx(published, rel=0.005)


def test_a_global_batch_is_divided_over_the_devices() -> None:
    found = situation.of("keras-resnet/power9-v100x4-horovod-scaling")
    assert (found.batch, found.whole) == (64, 256)
    assert found.batch_on(8) == 32
    (row,) = prediction.make(found, [2]).rows
    assert row.step.compute == pytest.approx(32 / prediction.make(found, [1]).base.rate)


@pytest.mark.parametrize(("ranks", "devices", "batch"), [(4, 1, 256), (8, 8, 64), (1, 2, 32)])
def test_ranks_may_share_a_device_or_have_several(ranks: int, devices: int, batch: int) -> None:
    recipe = situation.first("resnet-imagenet/a100x1-256px-mps4-throughput")
    shared = recipe.model_copy(update={"resources": recipe.resources.model_copy(
        update={"tasks_per_node": ranks})})
    planning = cards.load(recipe.app).card.planning
    assert planning is not None
    assert options.batch_of(shared, planning, devices) == batch


def test_a_series_with_batches_of_its_own_keeps_that_of_a_device() -> None:
    found = situation.of("language-model/h100x8-96gb-llama3-8b-scaling")
    assert (found.batch, found.whole) == (2 * 8192, None)
    assert found.exchange == "sharded"


def test_nodes_without_a_sample_for_each_device_are_left_out() -> None:
    found = situation.of("keras-resnet/power9-v100x4-horovod-scaling")
    plan = prediction.make(found, [1, 128])
    assert [row.nodes for row in plan.rows] == [1]
    assert plan.left_out == [128]
    with refused("plan-impossible", "256"):
        prediction.make(found, [128])


def test_a_rate_follows_from_the_time_of_an_epoch() -> None:
    plan = prediction.make(situation.of("keras-resnet/power9-v100x1-sequential-convergence"), [1])
    assert plan.base.rate == pytest.approx(50_000 / 42)


def test_samples_follow_from_steps() -> None:
    found = situation.of("language-model/h100x8-gpt2-convergence")
    assert found.samples == 18_865 * 512 * 1024


def test_memory_is_that_of_the_apps_own_estimate() -> None:
    name = "language-model/h100x8-96gb-llama3-8b-scaling"
    own = estimates.peak(name, situation.first(name))
    found = prediction.memory(situation.of(name))
    assert own is not None
    assert found.by_app
    assert found.gigabytes == own / 1e9 == pytest.approx(74.26, abs=0.01)


@pytest.mark.parametrize(("name", "word"), [
    ("language-model/cpu-2core-4ranks-3d-smoke", "tensor-parallel"),
    ("futuregan/cpu-quickstart", "width"),
    ("resnet-imagenet/a100x1-256px-throughput", "image-size"),
    ("keras-resnet/cpu-2core-parameter-server-smoke", "parameter-server"),
])
def test_what_the_model_does_not_predict_is_refused(name: str, word: str) -> None:
    with refused("plan-impossible", word):
        situation.of(name, "v100x1")


def test_the_gradient_penalty_has_no_autocast() -> None:
    """The gradient penalty is computed in TF32, all else in bf16.

    The H200 has 494 TFLOP/s in TF32 and 989 in bf16.
    """
    found = situation.of("futuregan/h200x1-throughput")
    penalty = sum(layer.flops for layer in found.network.layers
                  if layer.name.startswith("penalty."))
    assert 0.2 < penalty / found.network.flops < 0.5
    fast = replace(found, hardware=found.hardware.model_copy(update={
        "device": found.hardware.device.model_copy(update={"bandwidth": 1e9})}))
    assert base_rate.roofline(fast)[0] == pytest.approx(
        base_rate.PRODUCT_SHARE * 1e12 / 3
        / (penalty / 494 + (found.network.flops - penalty) / 989), rel=1e-3)


def test_work_files_of_apps_have_no_other_apps() -> None:
    for app in cards.names():
        assert (paths.app(app) / work.FILE).is_file() == (app in APPS)
