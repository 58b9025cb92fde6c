"""Test the plans of recipes: rates, memory, times, and the facts that a prediction lacks."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from refusals import refused
from trimaran import cli
from trimaran.errors import UsageError
from trimaran.plan import base_rate, prediction, situation, tables
from trimaran.plan.prediction import Plan
from trimaran.plan.situation import Situation

NAME = "resnet-imagenet/v100x8-throughput"


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.app, list(words), env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def v100() -> Situation:
    """Return the inputs of a prediction for the published run on eight V100 GPUs."""
    return situation.of(NAME)


def planned(found: Situation, *nodes: int, rate: float | None = None, price: float | None = None
            ) -> Plan:
    return prediction.make(found, nodes or (1,), rate=rate, price=price)


def test_the_published_rate_of_its_own_recipe_comes_out_again(v100: Situation) -> None:
    plan = planned(v100)
    (row,) = plan.rows
    assert row.devices == 8
    assert row.throughput == pytest.approx(8322)
    assert NAME in plan.base.source


def test_a_measured_rate_comes_first(v100: Situation) -> None:
    plan = planned(v100, rate=1000)
    assert plan.base.rate == 1000
    assert 7000 < plan.rows[0].throughput < 8000


def test_times_energy_and_cost_follow_from_the_throughput(v100: Situation) -> None:
    (row,) = planned(v100, rate=1000, price=10).rows
    assert row.hours is not None
    assert row.hours == pytest.approx(90 * 1_281_167 / row.throughput / 3600)
    assert row.kilowatt_hours == pytest.approx(row.hours * 8 * 0.3)
    assert row.cost == pytest.approx(row.hours * 10)


def test_without_a_published_rate_the_roofline_bounds_it(
    v100: Situation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_rate, "_published", lambda _: None)
    bound, _ = base_rate.roofline(v100)
    found = base_rate.find(v100)
    low, high = base_rate.ROOFLINE_RANGE
    assert low * bound < found.rate < high * bound
    assert found.uncertainty > base_rate.SCALING_ERROR


def test_a_number_that_is_not_judged_is_no_rate_of_this_app() -> None:
    found = situation.of("resnet-imagenet/h100x8-throughput")
    assert base_rate.find(found).source.startswith("roofline")


def test_facts_of_the_target_that_were_not_checked_are_said(v100: Situation) -> None:
    plan = planned(v100)
    assert any(line.startswith("Not checked in the target, device.watts:")
               for line in tables.sentences(plan))
    assert "device.watts" in prediction.document(plan)["unchecked"]


def test_memory_is_state_and_activations_and_a_batch_that_fits_divides_it(
    v100: Situation
) -> None:
    outputs = sum(layer.outputs for layer in v100.network.layers)
    small = prediction.memory(replace(v100, batch=1))
    assert small.gigabytes == pytest.approx(
        (12 * v100.network.parameters + 2 * outputs) / 1e9)
    assert small.fits
    large = prediction.memory(replace(v100, batch=1024))
    assert large.fits is False
    assert large.micro_batch is not None
    assert 1024 % large.micro_batch == 0
    assert prediction.memory(replace(v100, batch=large.micro_batch)).fits


def test_what_a_target_lacks_is_named() -> None:
    with refused("plan-impossible", "cpu-2core"):
        situation.of("resnet-imagenet/cpu-quickstart")
    with refused("plan-impossible", "collectives"):
        situation.of("collectives/cpu-2core-smoke")
    with refused("name-unknown", "v100x9"):
        situation.of(NAME, "v100x9")


def test_a_precision_without_a_peak_rate_is_refused() -> None:
    with refused("plan-impossible", "tf32"):
        situation.of("resnet-imagenet/a100x1-tf32-throughput", "v100x8")


def test_several_nodes_need_a_link_between_them(v100: Situation) -> None:
    apart = v100.hardware.model_copy(update={"between": None})
    with refused("plan-impossible", "v100x8"):
        planned(replace(v100, hardware=apart), 1, 2, rate=1000)


def test_the_command_prints_json_and_draws_the_plot(tmp_path: Path) -> None:
    plot = tmp_path / "plan.svg"
    done = invoke("plan", NAME, "--nodes", "1", "--rate", "1000", "--json", "--plot", str(plot))
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["network"], found["rows"][0]["devices"]) == ("resnet50", 8)
    assert "<svg" in plot.read_text()


def test_the_command_shows_the_comparison_with_published_series() -> None:
    found = json.loads(invoke("plan", "--validate", "--json").stdout)
    assert {"published", "predicted", "error", "sources"} <= found[0].keys()


@pytest.mark.parametrize("words", [
    ["--nodes", "0"], ["--nodes", "1,,2"], ["--nodes", "1e3"], ["--nodes", "9" * 30],
    ["--rate", "-1"], ["--rate", "nan"], ["--price", "0"], ["--price", "1e13"],
])
def test_wrong_numbers_are_refused(words: list[str]) -> None:
    with refused("argument-invalid", words[0], kind=UsageError):
        raise invoke("plan", NAME, *words).exception or AssertionError


@pytest.mark.parametrize("words", [
    ["--target", "v100x1"], ["--nodes", "1"], ["--rate", "1"], ["--from-run", "x"],
    ["--link", "x"], ["--price", "2"], ["--plot", "x.svg"],
])
def test_options_that_the_comparison_does_not_use_are_refused(words: list[str]) -> None:
    with refused("arguments-conflict", words[0], kind=UsageError):
        raise invoke("plan", "--validate", *words).exception or AssertionError


@pytest.mark.parametrize(("words", "shown"), [
    ([NAME], f"trimaran run {NAME}"),
    (["resnet-imagenet/frontera-throughput"],
     "trimaran submit resnet-imagenet/frontera-throughput"),
    (["resnet-imagenet/gh200x4-scaling"], "trimaran submit resnet-imagenet/gh200x4-scaling"),
    (["resnet-imagenet/gh200x4-scaling@1"], "trimaran run resnet-imagenet/gh200x4-scaling@1"),
    ([NAME, "--target", "v100x1"], None),
])
def test_the_command_that_checks_a_plan_is_one_that_can(words: list[str], shown: str | None
                                                        ) -> None:
    done = invoke("plan", *words, "--nodes", "1")
    assert done.exit_code == 0, done.output
    found = re.findall(r"trimaran (?:run|submit) \S+", done.output)
    assert found == ([] if shown is None else [shown])
