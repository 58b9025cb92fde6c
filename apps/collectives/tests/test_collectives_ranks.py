"""Two and three ranks measure with MPI and torch.distributed, or end with the right exit code."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import MPIRUN, faulty, mpi, start, torch

from collectives import plot, results
from collectives.__main__ import main
from collectives.operations import OPERATIONS
from trainkit import outputs
from trainkit.testing import reading
from trainkit.testing.refusals import assert_reported

APP = Path(__file__).parents[1]
METRICS: dict[str, Any] = yaml.safe_load((APP / "app.yaml").read_text())["metrics"]

pytestmark = pytest.mark.slow

MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
"""Memory of this machine in bytes."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished measurement with MPI on two ranks. Do not change it."""
    out = tmp_path_factory.mktemp("mpi") / "run"
    said = mpi(2, out, "--factor", "8")
    assert "2 ranks: 2 on" in said
    assert "fitted time" in said
    return out


def test_all_operations_are_measured_at_all_sizes(measured: Path) -> None:
    found = results.read(measured)
    assert (found.library, found.ranks, found.dtype, found.device) == ("mpi", 2, "float32", "cpu")
    assert found.left_out == {}
    at = {name: [one.bytes for one in found.points if one.operation == name] for name in OPERATIONS}
    assert at.pop("barrier") == [0]
    for name, sizes in at.items():
        assert sizes == [8 if OPERATIONS[name].split else 4, 32, 256, 2048]
    for one in found.points:
        seconds = one.seconds
        assert 0 < seconds.min <= seconds.q1 <= seconds.median <= seconds.q3 <= seconds.max < 60
        if one.algbw_gb_s is not None:
            about = OPERATIONS[one.operation]
            rate = about.traffic * one.bytes / seconds.median / 1e9
            assert one.algbw_gb_s == pytest.approx(rate)
            assert one.busbw_gb_s == pytest.approx(rate * about.bus(2))


def test_the_files_fulfil_the_contract(measured: Path) -> None:
    lines = reading.lines(measured)
    runs = [one["key"] for one in lines if one["key"].startswith("run")]
    assert runs == ["run_start", "run_stop"]
    assert lines[0]["metadata"]["ranks"] == 2
    points = results.read(measured).points
    end = lines[-1]["metadata"]
    assert (end["status"], end["step"]) == ("success", len(points))
    steps = [one["metadata"]["step"] for one in lines[1:]]
    assert steps == sorted(steps)
    result = reading.result(measured)
    assert (result["status"], result["steps"]) == ("success", len(points))
    for metric in METRICS.values():
        values = [one["value"] for one in lines if one["key"] == metric["key"]]
        if "result" in metric:
            assert result["evaluation"].get(metric["result"]) == (values[-1] if values else None)
    assert {"allreduce_latency_4b", "latency_4b", "barrier_latency"} <= result["evaluation"].keys()
    about = json.loads((measured / outputs.ENVIRONMENT).read_text())["communication"]
    assert about["library"] == "mpi"
    assert "MPI" in about["mpi"]


def test_a_finished_run_is_drawn_and_never_overwritten(measured: Path, tmp_path: Path) -> None:
    out = tmp_path / "plot.svg"
    assert main(["plot", "--out", str(measured), "--to", str(out)]) == 0
    assert out.stat().st_size > 10_000
    before = (measured / "metrics.jsonl").read_bytes()
    said = mpi(2, measured, code=2)
    assert_reported(said, "run-not-empty", measured)
    assert (measured / "metrics.jsonl").read_bytes() == before


def test_a_fitted_line_has_the_times_of_its_range(measured: Path) -> None:
    for fit in results.read(measured).fits:
        for one, (sizes, times) in zip(fit.ranges, plot.fitted(fit), strict=True):
            assert (sizes[0], sizes[-1]) == (one.from_bytes, pytest.approx(one.to_bytes))
            assert times[0] >= one.alpha_us


def test_torch_measures_bfloat16_on_two_ranks(tmp_path: Path) -> None:
    said = torch(2, tmp_path / "run", "--dtype", "bfloat16", "--max-bytes", "64")
    found = results.read(tmp_path / "run")
    assert (found.library, found.backend) == ("torch", "gloo")
    assert {one.operation for one in found.points} | found.left_out.keys() == OPERATIONS.keys()
    assert "torch (gloo), bfloat16 in CPU memory" in said


def test_three_ranks_move_what_mpi_cannot_add(tmp_path: Path) -> None:
    mpi(3, tmp_path / "run", "--dtype", "float16")
    found = results.read(tmp_path / "run")
    assert found.left_out.keys() == {"all-reduce", "reduce", "reduce-scatter"}
    gathered = [one.bytes for one in found.points if one.operation == "all-gather"]
    assert gathered == [6, 1020]  # whole elements for each of three ranks


@pytest.mark.parametrize(("more", "code", "named"), [
    (["--dtype", "float16", "--operations", "all-reduce"], "operation-missing", "float16"),
    pytest.param(  # two buffers on each of two ranks
        ["--operations", "all-to-all", "--min-bytes", "15GiB", "--max-bytes", "15GiB"],
        "memory-insufficient", "15 GiB",
        marks=pytest.mark.skipif(MEMORY > 4 * 15 * 2**30, reason="this machine has the memory"),
    ),
])
def test_what_cannot_be_measured_is_refused_on_all_ranks(
    more: list[str], code: str, named: str, tmp_path: Path
) -> None:
    words = [*MPIRUN, "2", sys.executable, "-m", "collectives", "measure", "--library", "mpi"]
    said = start([*words, "--out", tmp_path / "run", *more, "--factor", "1024"], 2)
    assert_reported(said, code, named)
    assert said.count("error[") == 1
    assert not (tmp_path / "run").exists()


def test_one_rank_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "--out", str(tmp_path / "run")]) == 2
    assert_reported(capsys.readouterr().err, "ranks-too-few", "mpirun")
    words = [sys.executable, "-m", "collectives", "measure", "--out", tmp_path / "run"]
    assert_reported(start([*words, "--library", "mpi"], 2), "ranks-too-few", "mpirun")
    assert not (tmp_path / "run").exists()


def test_ranks_that_see_no_other_are_refused(tmp_path: Path) -> None:
    """`measure` ends with an error if the launcher did not connect the ranks.

    The variables of a foreign launcher name two ranks, but MPI is not connected to another rank.
    """
    words = [sys.executable, "-m", "collectives", "measure", "--out", tmp_path / "run"]
    variables = {"PMI_RANK": "0", "PMI_SIZE": "2"}
    said = start([*words, "--library", "mpi"], 2, **variables)
    assert_reported(said, "ranks-unconnected", "--library torch")


def test_a_wrong_result_ends_all_ranks(tmp_path: Path) -> None:
    words = ["--operations", "broadcast,all-gather"]
    said = faulty("all-gather:wrong", tmp_path / "run", *words, code=70)
    assert_reported(said, "result-wrong", "all-gather", "1 KiB", "rank 1", "element 5")
    assert said.count("error[") == 1
    assert reading.lines(tmp_path / "run")[-1]["metadata"]["status"] == "aborted"
    assert not (tmp_path / "run/result.json").exists()


def test_a_rank_that_stops_is_named(tmp_path: Path) -> None:
    words = ["--operations", "broadcast", "--patience", "5"]
    said = faulty("broadcast:stopped", tmp_path / "run", *words, code=69)
    assert_reported(said, "rank-lost", "measuring broadcast of 1 KiB", "rank 1 is silent")
