"""Tuned recipes: the same global batch, only the tuned changes, and valid expectations."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from trimaran import paths
from trimaran.recipes import library
from trimaran.recipes.recipe import Recipe, Tuned
from trimaran.tune import derive, space
from trimaran.tune.space import Space, Value

NAME = "resnet-imagenet/cpu-quickstart"
TUNED = Tuned(
    recipe=NAME, sha256="ab" * 32, date=date(2026, 11, 28), host="2 cores of a CPU", engine="host",
    command="trimaran tune x", metric="throughput", unit="img/s", default=[1.0, 2.0],
    tuned=[2.0, 3.0], gain=0.7, gain_low=0.5, gain_high=1.0, changed={"threads": 1},
)


def within(name: str = NAME) -> tuple[Recipe, Space]:
    file = library.load(name)
    assert file.card.card.tuning is not None
    return file.recipe, space.of(file, file.card.card.tuning, {"LD_PRELOAD": "/libtcmalloc.so"})


def derived(name: str = NAME, **changed: Value) -> Recipe:
    base, found = within(name)
    return derive.recipe(base, found, {**found.default, **changed})


def test_the_recipes_own_values_change_nothing() -> None:
    base, _ = within()
    assert derived() == base


def test_two_ranks_share_the_batch_and_the_cores() -> None:
    found = derived(ranks=2, threads=1)
    assert found.resources.tasks_per_node == 2
    assert found.resources.cpus_per_task == 1
    assert found.args["batch-size-per-rank"] == 32
    assert (found.launcher, found.args["strategy"]) == ("torchrun", "ddp")
    assert found.env["OMP_NUM_THREADS"] == "1"


def test_one_rank_has_the_batch_of_all() -> None:
    found = derived("resnet-imagenet/cpu-2core-2ranks-smoke", ranks=1)
    assert found.args["batch-size-per-rank"] == 128
    assert found.launcher == "none"
    assert "strategy" not in found.args


def test_a_batch_of_the_job_stays_with_more_ranks() -> None:
    base, _ = within("keras-resnet/cpu-2core-horovod-smoke")
    found = derived("keras-resnet/cpu-2core-horovod-smoke", ranks=1)
    assert found.args["batch-size"] == base.args["batch-size"]


def test_each_parameter_sets_its_option_or_variable() -> None:
    found = derived(**{"input-workers": 2, "batch-parts": 4, "precision": "bf16",
                       "allocator": "glibc-keeping"})
    assert (found.args["threads"], found.args["accumulation"]) == (2, 4)
    assert found.args["precision"] == "bf16"
    assert found.env["MALLOC_MMAP_MAX_"] == "0"
    fused = derived("resnet-imagenet/cpu-2core-2ranks-horovod-smoke",
                    **{"fusion-threshold": 64 * 2**20})
    assert fused.env["HOROVOD_FUSION_THRESHOLD"] == "67108864"


@pytest.mark.parametrize("changed", [{"ranks": 2}, {"ranks": 2, "threads": 2}])
def test_more_threads_than_cores_are_refused(changed: dict[str, Value]) -> None:
    with pytest.raises(derive.RefusedError, match="cores"):
        derived(**changed)


def test_parts_that_do_not_divide_the_batch_of_a_rank_are_refused() -> None:
    base, found = within()
    small = base.model_copy(update={"args": {**base.args, "batch-size-per-rank": 4}})
    with pytest.raises(derive.RefusedError, match="divided"):
        derive.recipe(small, found, {**found.default, "batch-parts": 8})


def test_a_recipe_whose_own_parts_are_uneven_can_still_be_run() -> None:
    base, found = within()
    uneven = base.model_copy(update={"args": {**base.args, "accumulation": 3}})
    assert derive.recipe(uneven, found, {**found.default, "threads": 1}).args["accumulation"] == 3


@pytest.mark.parametrize(("changed", "kept"), [
    ({"threads": 1}, ["val_top1"]), ({"allocator": "glibc-keeping", "input-workers": 2},
                                     ["val_top1"]),
    ({"precision": "fp32"}, []), ({"batch-parts": 2}, []), ({"ranks": 2, "threads": 1}, []),
])
def test_an_accuracy_stays_only_if_the_formulas_stay(
    changed: dict[str, Value], kept: list[str]
) -> None:
    base, found = within()
    card = library.load(NAME).card.card
    final = derive.final(base, card, found, {**found.default, **changed}, TUNED)
    assert [one.metric for one in final.expected] == kept
    assert final.tuned == TUNED


def test_a_published_speed_is_not_expected_of_other_settings() -> None:
    name = "resnet-imagenet/v100x1-throughput"
    base, found = within(name)
    card = library.load(name).card.card
    assert base.expected
    final = derive.final(base, card, found, {**found.default, "allocator": "glibc-keeping"}, TUNED)
    assert not any(card.metrics[one.metric].hardware_bound for one in final.expected)


def test_the_reason_of_a_changed_value_is_left_out() -> None:
    base, found = within()
    reasons = {"env.OMP_NUM_THREADS": "a guess", "args.base-lr": "another"}
    assumed = base.model_copy(update={"assumed": reasons})
    changed = derive.recipe(assumed, found, {**found.default, "threads": 1})
    assert changed.assumed == {"args.base-lr": "another"}


@pytest.mark.parametrize(("name", "expected"), [
    (NAME, "resnet-imagenet/cpu-2core-tuned-quickstart"),
    ("resnet-imagenet/cpu-2core-2ranks-smoke", "resnet-imagenet/cpu-2core-2ranks-tuned-smoke"),
    ("resnet-imagenet/gtx1080ti-x4-scaling@4", "resnet-imagenet/gtx1080ti-x4-4-tuned-scaling"),
])
def test_its_name_has_target_variant_and_purpose(name: str, expected: str) -> None:
    assert derive.name(name, library.load(name).recipe) == expected


@pytest.mark.parametrize("name", [NAME, "resnet-imagenet/gtx1080ti-x4-scaling@4",
                                  "language-model/cpu-quickstart", "futuregan/cpu-quickstart"])
def test_its_file_is_found_in_a_folder_of_recipes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = library.load(name)
    base, found = within(name)
    final = derive.final(base, file.card.card, found, found.default, TUNED)
    own = derive.name(name, base)
    path = tmp_path / "recipes" / f"{own}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(derive.text(final, "A comment."))
    monkeypatch.setenv(paths.OWN, str(tmp_path))
    assert library.load(own).recipe == final
    assert library.load(own).recipe.tuned == TUNED
