"""Test predictions from measurements.

The measurements are links between ranks, by the app `collectives`, and the rates of earlier runs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import comparable
from finished import write_recipe
from refusals import refused
from trimaran import cli, paths
from trimaran.plan import calibration, prediction, situation
from trimaran.plan.communication import Layout, all_reduce
from trimaran.plan.situation import Situation

OPTIONS = paths.repository() / "apps/resnet-imagenet/options.json"
NAME = "resnet-imagenet/v100x8-throughput"


def results(folder: Path, placed: list[str], **more: Any) -> Path:
    """Write a measurement on these hosts: large all-reduces take 60 us plus bytes at 4 GB/s."""
    folder.mkdir(exist_ok=True)
    ranges = [
        {"from_bytes": 4, "to_bytes": 1024, "alpha_us": 1, "gb_s": 1, "n_half_bytes": 1,
         "error": 0},
        {"from_bytes": 2048, "to_bytes": 1 << 28, "alpha_us": 60, "gb_s": 4, "n_half_bytes": 1,
         "error": 0},
    ]
    document = {
        "schema": 1, "library": "torch", "backend": "nccl 2.27", "ranks": len(placed),
        "hosts": placed, "fits": [{"operation": "all-reduce", "ranges": ranges}], **more,
    }
    (folder / "collectives.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def v100() -> Situation:
    return situation.of(NAME)


def test_a_measured_all_reduce_comes_out_again(v100: Situation, tmp_path: Path) -> None:
    """The predicted time equals the measured one: 60 us plus 4 GB at 4 GB/s, for four ranks."""
    found = calibration.with_link(v100, results(tmp_path / "run", ["a"] * 4))
    wire = found.wire("within")
    assert found.wire("between") == v100.wire("between")
    assert all_reduce(4e9, Layout(1, 4, wire)) == pytest.approx(1 + 60e-6)


def test_ranks_on_several_hosts_measure_the_link_between_them(
    v100: Situation, tmp_path: Path
) -> None:
    found = calibration.with_link(v100, results(tmp_path / "run", ["a", "a", "b", "b"]))
    assert found.wire("within") == v100.wire("within")
    assert all_reduce(4e9, Layout(2, 1, None, found.wire("between"))) == pytest.approx(1 + 60e-6)


def test_the_json_itself_can_be_named_and_the_plan_says_where_it_was_measured(
    v100: Situation, tmp_path: Path
) -> None:
    file = results(tmp_path / "run", ["a"] * 8) / "collectives.json"
    found = prediction.document(prediction.make(calibration.with_link(v100, file), [1, 2]))
    assert str(file) in found["links"]["within"]["source"]
    assert found["links"]["between"]["source"] == "target v100x8"
    assert found["links"]["within"]["latency_us"] == pytest.approx(60 / 14)


@pytest.mark.parametrize(("more", "code"), [
    ({"fits": []}, "plan-impossible"),
    ({"fits": [{"operation": "all-reduce", "ranges": [
        {"to_bytes": 8, "alpha_us": 1, "gb_s": None}]}]}, "plan-impossible"),
    ({"fits": [{"operation": "all-reduce", "ranges": [
        {"to_bytes": 8, "alpha_us": 1, "gb_s": -1}]}]}, "file-invalid"),
    ({"ranks": 1}, "file-invalid"), ({"hosts": "a"}, "file-invalid"),
])
def test_results_that_cannot_be_used_are_refused(
    v100: Situation, tmp_path: Path, more: dict[str, Any], code: str
) -> None:
    path = results(tmp_path / "run", ["a", "a"], **more)
    with refused(code, "collectives.json"):
        calibration.with_link(v100, path)


def test_a_folder_without_results_is_refused(v100: Situation, tmp_path: Path) -> None:
    with refused("file-missing", tmp_path):
        calibration.with_link(v100, tmp_path)


@pytest.fixture
def run(checkout: Path, tmp_path: Path) -> Path:
    """Create a run of resnet20 in fp32 with 4,000 images per second and one task."""
    recipe = write_recipe(checkout)
    (checkout / "apps/resnet-imagenet/options.json").write_bytes(OPTIONS.read_bytes())
    (checkout / "apps/resnet-imagenet/work.json").write_text(json.dumps(
        {name: {"size": 32, "layers": [["one", [10], 100, 10]]}
         for name in ("resnet20", "resnet32")}))
    return comparable.leave(tmp_path / "run", recipe, (0.9,), (4000.0,) * 3, 1, 2, {})


def planned(checkout: Path, **args: Any) -> Situation:
    """Return the inputs of a prediction for a recipe like the run's; the hardware is made up."""
    target = checkout / "recipes/targets/cpu-2core.yaml"
    target.write_text(target.read_text() + """
hardware:
  device: {name: a processor, count: 1, teraflops: {fp32: 1, bf16: 1}, bandwidth: 10}
  sources: [made up]
""")
    recipe = situation.first("resnet-imagenet/cpu-smoke")
    write_recipe(checkout, args={**recipe.args, **args})
    return situation.of("resnet-imagenet/cpu-smoke")


def test_the_rate_of_a_run_counts(checkout: Path, run: Path) -> None:
    found = planned(checkout)
    base = calibration.of_run(found, run)
    assert base.rate == pytest.approx(4000)
    assert str(run) in base.source
    (row,) = prediction.make(found, [1], run=run).rows
    assert row.throughput == pytest.approx(4000)


def test_a_run_on_a_target_without_facts_is_refused(
    checkout: Path, run: Path
) -> None:
    found = planned(checkout)
    folder = checkout / "recipes/targets"
    with_facts = (folder / "cpu-2core.yaml").read_text()
    (folder / "other.yaml").write_text(with_facts)
    (folder / "cpu-2core.yaml").write_text(with_facts[:with_facts.index("hardware:")])
    with refused("plan-impossible", "cpu-2core") as caught:
        calibration.of_run(replace(found, target_name="other"), run)
    assert "recipes/targets/cpu-2core.yaml" in (caught.value.hint or "")


def test_a_run_of_another_network_is_refused(checkout: Path, run: Path) -> None:
    with refused("runs-incomparable", "resnet32"):
        calibration.of_run(planned(checkout, model="resnet32"), run)


def test_a_run_of_another_app_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIMARAN_ROOT", raising=False)
    with refused("runs-incomparable", "chexnet"):
        calibration.of_run(situation.of("chexnet/skx6148-2s-scaling"), run)


def invoke(*words: str) -> Result:
    return CliRunner().invoke(cli.app, list(words), env={"COLUMNS": "200"})


def test_the_command_takes_both_links(tmp_path: Path) -> None:
    one = results(tmp_path / "one", ["a"] * 2)
    two = results(tmp_path / "two", ["a", "b"])
    done = invoke("plan", NAME, "--nodes", "1,2", "--link", str(one), "--link", str(two))
    assert done.exit_code == 0, done.output
    assert done.output.count("measured: all-reduce") == 2


def test_two_measurements_of_one_link_are_refused(tmp_path: Path) -> None:
    one, two = (results(tmp_path / name, ["a"] * 2) for name in ("one", "two"))
    done = invoke("plan", NAME, "--link", str(one), "--link", str(two))
    with refused("arguments-conflict", one, two):
        raise done.exception or AssertionError


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with refused("run-missing", tmp_path):
        raise invoke("plan", NAME, "--from-run", str(tmp_path)).exception or AssertionError


def test_two_origins_of_the_rate_are_refused(tmp_path: Path) -> None:
    with refused("arguments-conflict", "--from-run"):
        raise invoke("plan", NAME, "--rate", "1", "--from-run", "x").exception or AssertionError
