"""Tests of the required input: bytes per second, decoding cores, and whether input is the limit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from trimaran import paths
from trimaran.plan import feeding, prediction, situation, tables
from trimaran.plan.situation import Situation
from trimaran.recipes import cards
from trimaran.recipes.hardware import Storage

NAME = "resnet-imagenet/v100x8-throughput"


@pytest.fixture
def v100(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Situation:
    """Return the inputs of a prediction for an ImageNet recipe, without packed data."""
    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path))
    return situation.of(NAME)


def stored(found: Situation, **rates: float) -> Situation:
    """Return a copy of the prediction's inputs `found`, with a file system of the given speed.

    `rates` are read rates in GB/s: `node` for one node, `whole` for all nodes together.
    """
    storage = Storage(name="a file system", **rates)
    return replace(found, hardware=found.hardware.model_copy(update={"storage": storage}))


def test_bytes_follow_from_the_published_size(v100: Situation) -> None:
    """The bytes per second follow from ImageNet's size: 138 GB for 1,281,167 images."""
    found = feeding.of(v100, 2, 20_000)
    assert found.samples == 10_000
    assert found.gigabytes == pytest.approx(10_000 * 138 / 1_281_167)


def test_cores_follow_from_the_measured_rate(v100: Situation) -> None:
    found = feeding.of(v100, 1, 6830)
    assert found.cores == pytest.approx(10)
    assert found.cores_here == 40
    assert found.binding is None


def test_too_few_cores_bind(v100: Situation) -> None:
    binding = feeding.of(v100, 1, 41 * 683).binding
    assert binding is not None
    assert binding.startswith("decoding")


def test_the_rate_of_a_core_is_that_of_the_benchmark() -> None:
    """The rate per core is half of what the benchmark `input_pipeline.py` measured on two cores."""
    decoding = situation.of(NAME).planning.decoding
    file = "site/results/benchmarks/2026-11-22-epyc-2core-input_pipeline.json"
    evidence = json.loads((paths.repository() / file).read_text())
    (rate,) = (one for one in evidence["rates"] if one["name"].startswith("ours"))
    assert decoding is not None
    assert decoding.per_core == round(rate["median"] / len(evidence["machine"]["cores"]))


@pytest.mark.parametrize(("rates", "binds"), [
    ({"node": 0.5}, True), ({"node": 2}, False), ({"whole": 1.5}, True), ({"whole": 4}, False),
])
def test_a_stated_file_system_binds_if_it_is_slower(
    v100: Situation, rates: dict[str, float], binds: bool
) -> None:
    """A file system is the limit if it reads more slowly than the training needs data.

    Two nodes of 10,000 images per second read 1.08 GB/s each.
    """
    binding = feeding.of(stored(v100, **rates), 2, 20_000).binding
    assert (binding or "").startswith("storage") == binds


def test_without_a_stated_file_system_its_rate_is_not_known(v100: Situation) -> None:
    found = feeding.of(v100, 1, 1000)
    assert any("states no file system" in text for text in found.limits)
    assert found.binding is None


def test_what_binds_the_input_is_said_of_the_plan(v100: Situation) -> None:
    plan = prediction.make(stored(v100, node=0.1), [1])
    assert plan.binding.startswith("storage")
    assert any("Reading: 0." in line for line in tables.sentences(plan))


def test_unknown_sizes_and_rates_are_not_invented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", str(tmp_path))
    found = feeding.of(situation.of("chexnet/skx6148-2s-scaling"), 1, 1000)
    assert (found.size, found.gigabytes, found.cores) == (None, None, None)


def test_synthetic_data_are_not_read() -> None:
    found = feeding.of(situation.of("resnet-imagenet/gh200x4-scaling"), 1, 1000)
    assert not found.reads
    assert found.gigabytes is None


def test_a_token_of_a_small_vocabulary_has_two_bytes() -> None:
    found = feeding.of(situation.of("language-model/h100x8-gpt2-convergence"), 1, 1e9)
    assert found.gigabytes == pytest.approx(2)
    assert not found.encoded


def test_packed_data_on_this_machine_are_measured(v100: Situation) -> None:
    contract = feeding.contracts.load("imagenet-2012")
    folder = feeding.cache.folder(contract, "webdataset")
    folder.mkdir(parents=True)
    golden = paths.repository() / "apps/resnet-imagenet/tests/data/packed/webdataset/dataset.json"
    (folder / "dataset.json").write_bytes(golden.read_bytes())
    dataset = json.loads(golden.read_text())["splits"]["train"]
    size = feeding.of(v100, 1, 1).size
    assert size is not None
    assert size.average == pytest.approx(
        sum(one["bytes"] for one in dataset["shards"]) / dataset["samples"])


def test_a_card_states_the_data_sets_of_its_decoding() -> None:
    for app in cards.names():
        planning = cards.load(app).card.planning
        for name in (planning.decoding.data if planning and planning.decoding else ()):
            feeding.contracts.load(name)
