"""Test the parameters that `trimaran tune` varies for a recipe, and their possible values."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.engines.host import GLIBC_TUNABLES
from trimaran.recipes import library
from trimaran.recipes.cards import Tuning
from trimaran.tune import space
from trimaran.tune.space import GLIBC, KEEPING, TCMALLOC, Space, Value

IMAGE = {"LD_PRELOAD": "/usr/lib/libtcmalloc_minimal.so.4:/usr/lib/libomp.so.5"}


def of(name: str, **more: Any) -> Space:
    file = library.load(name)
    assert file.card.card.tuning is not None
    return space.of(file, file.card.card.tuning, more.pop("known", IMAGE), **more)


def values(found: Space) -> dict[str, tuple[Value, ...]]:
    return {one.name: one.values for one in found.parameters}


def test_the_quickstart_begins_with_the_values_of_the_recipe() -> None:
    found = values(of("resnet-imagenet/cpu-quickstart"))
    assert found == {
        "ranks": (1, 2), "threads": (2, 1), "input-workers": (1, 2),
        "batch-parts": (1, 2, 4, 8), "precision": ("auto", "fp32", "bf16"),
        "allocator": (TCMALLOC, KEEPING),
    }


def test_the_first_trials_change_one_setting_each() -> None:
    found = of("resnet-imagenet/cpu-quickstart")
    first, *others = found.first()
    assert first == found.default
    assert len(others) == sum(len(one.values) - 1 for one in found.parameters)
    for one in others:
        changed = found.changed(one)
        assert len(changed) == 1 or changed == {"ranks": 2, "threads": 1}


def test_what_the_user_keeps_is_no_parameter() -> None:
    found = values(of("resnet-imagenet/cpu-quickstart", keep=["precision", "ranks"]))
    assert not {"precision", "ranks"} & found.keys()


def test_ranks_on_gpus_are_kept_and_gpus_have_more_precisions() -> None:
    found = values(of("resnet-imagenet/v100x1-throughput"))
    assert not {"ranks", "threads"} & found.keys()
    assert "fp16" in found["precision"]


def test_the_fusion_threshold_is_a_parameter_of_horovod_only() -> None:
    assert "fusion-threshold" in values(of("resnet-imagenet/cpu-2core-2ranks-horovod-smoke"))
    assert "fusion-threshold" not in values(of("resnet-imagenet/cpu-2core-2ranks-smoke"))


def test_another_strategy_than_that_of_the_card_keeps_its_ranks() -> None:
    assert "ranks" not in values(of("keras-resnet/cpu-2core-mirrored-smoke"))
    assert "ranks" in values(of("keras-resnet/cpu-2core-horovod-smoke"))


def test_the_global_batch_counts_all_ranks() -> None:
    recipe = library.load("resnet-imagenet/cpu-2core-2ranks-smoke").recipe
    per_rank = Tuning(batch="batch-size-per-rank")
    assert space.global_batch(recipe, per_rank) == 128
    assert space.global_batch(recipe, per_rank.model_copy(update={"batch_of": "job"})) == 64
    assert space.global_batch(recipe, Tuning()) is None


@pytest.mark.parametrize(("known", "names"), [
    (IMAGE, [TCMALLOC, KEEPING]), (GLIBC_TUNABLES, [KEEPING, GLIBC]), ({}, [GLIBC, KEEPING]),
])
def test_the_allocator_in_use_comes_first(known: dict[str, str], names: list[str]) -> None:
    recipe = library.load("resnet-imagenet/cpu-quickstart").recipe
    found = space.allocators_of(recipe, known)
    assert list(found) == names
    assert found[names[0]] == {}


def test_without_tcmalloc_other_libraries_stay_preloaded() -> None:
    recipe = library.load("resnet-imagenet/cpu-quickstart").recipe
    assert space.allocators_of(recipe, IMAGE)[KEEPING]["LD_PRELOAD"] == "/usr/lib/libomp.so.5"


def test_a_recipe_that_chooses_its_allocator_keeps_it() -> None:
    recipe = library.load("resnet-imagenet/cpu-quickstart").recipe
    own = recipe.model_copy(update={"env": {"LD_PRELOAD": "/x.so"}})
    assert space.allocators_of(own, IMAGE) == {}


@pytest.mark.parametrize(("most", "expected"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]),
                                                (8, [1, 2, 4, 8])])
def test_values_double_up_to_the_largest(most: int, expected: list[int]) -> None:
    assert space.doubling(most) == expected
