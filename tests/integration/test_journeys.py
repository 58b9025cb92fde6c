"""Typical uses of the tool on the host engine: real data, real trainings of few steps.

With an empty cache, the first test downloads Fashion-MNIST and the locked wheels; the other tests
use them from the cache.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.trains, pytest.mark.alone, pytest.mark.usefixtures("user_cache")]

RECIPE = "resnet-imagenet/cpu-quickstart"
SHORT = ["--set", "max-steps=12", "--set", "log-every=4", "--set", "eval-every=1"]
TRIMARAN = [sys.executable, "-c", "from trimaran.cli import main; main()"]


def trimaran(*words: str, timeout: float = 280) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TRIMARAN, *words], capture_output=True, text=True, timeout=timeout, check=False,
        env={**os.environ, "COLUMNS": "120"},
    )


def run(out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return trimaran("run", RECIPE, "--engine", "host", "--out", str(out), *SHORT, *words)


def losses(directory: Path) -> list[tuple[int, float]]:
    events = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [(e["metadata"]["step"], e["value"]) for e in events if e["key"] == "train_loss"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run a short training once, and return its run directory."""
    out = tmp_path_factory.mktemp("journey") / "run"
    done = run(out)
    assert done.returncode == 5, done.stderr
    assert "VERDICT NO REFERENCE" in done.stdout
    assert "the recipe's arguments were changed" in done.stdout
    assert "not in a container: not publishable as evidence" in done.stdout
    return out


def test_a_run_leaves_provenance_metrics_checkpoint_log_and_report(finished: Path) -> None:
    record = json.loads((finished / "run.json").read_text())
    assert record["status"] == "completed"
    assert record["exit_status"] == 0
    assert record["image"]["publishable"] is False
    assert record["environment"]["packages"]["torch"].startswith("2.13.0")
    assert record["recipe"]["changed"]["max-steps"] == 12
    assert {step for step, _ in losses(finished)} == {4, 8, 12}
    names = {path.name for path in finished.iterdir()}
    assert {"log.txt", "recipe.yaml", "report.md", "report.html", "curves.svg",
            "verdict.json", "checkpoints"} <= names


def test_the_dry_run_pasted_into_a_shell_gives_the_same_run(
    finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "pasted"
    printed = run(out, "--dry-run")
    assert printed.returncode == 0, printed.stderr
    assert not out.exists(), "a dry run makes nothing"
    subprocess.run(["sh", "-e"], input=printed.stdout, text=True, check=True, timeout=280)
    assert losses(out) == losses(finished)


def test_a_finished_run_is_judged_again_but_never_overwritten(finished: Path) -> None:
    assert trimaran("report", str(finished)).returncode == 5
    before = (finished / "run.json").read_bytes()
    again = run(finished)
    assert again.returncode == 2
    assert "[run-not-empty]" in again.stderr
    assert (finished / "run.json").read_bytes() == before


def test_ctrl_c_ends_the_children_and_the_run_goes_on_to_its_verdict(tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ["--engine", "host", "--out", str(out), *SHORT, "--set", "max-steps=60"]
    with subprocess.Popen(
        [*TRIMARAN, "run", RECIPE, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as child:
        deadline = time.monotonic() + 400
        while not (out / "metrics.jsonl").exists() or not losses(out):
            assert time.monotonic() < deadline
            assert child.poll() is None
            time.sleep(0.1)
        family = psutil.Process(child.pid).children(recursive=True)
        assert family
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=300)[0]
    assert child.returncode == 130
    assert f"trimaran resume {out}" in said.replace("\n", " ")
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    stopped = json.loads((out / "run.json").read_text())
    assert stopped["status"] == "interrupted"
    judged = trimaran("report", str(out))
    assert judged.returncode == 2
    assert "[run-incomplete]" in judged.stderr

    resumed = trimaran("resume", str(out))
    assert resumed.returncode == 5, resumed.stderr
    assert "stopped, and resumed at" in resumed.stdout
    assert [step for step, _ in losses(out)] == [*range(4, 61, 4)]
    whole = json.loads((out / "run.json").read_text())
    assert (whole["status"], len(whole["resumed"])) == ("completed", 1)
    assert whole["seconds"] > stopped["seconds"]
    assert whole["command"] == stopped["command"]
    again = trimaran("resume", str(out))
    assert (again.returncode, "[run-completed]" in again.stderr) == (2, True)


def test_damaged_data_is_named_before_anything_runs(tmp_path: Path) -> None:
    got = trimaran("data", "get", "fashion-mnist")
    assert got.returncode == 0, got.stderr
    copy = tmp_path / "data"
    shutil.copytree(got.stdout.strip(), copy)
    shard = copy / "train-00000.tar"
    with shard.open("r+b") as handle:
        handle.truncate(shard.stat().st_size // 2)
    done = run(tmp_path / "run", "--data", str(copy))
    assert done.returncode == 4
    assert str(shard) in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_argument_that_the_app_does_not_know_is_refused_before_anything(tmp_path: Path) -> None:
    done = run(tmp_path / "run", "--set", "epoch=1")
    assert done.returncode == 2
    assert "[argument-invalid]" in done.stderr
    assert "mean epochs" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["run", "resnet-imagenet/cpu-quikstart"], "resnet-imagenet/cpu-quickstart"),
        (["run", RECIPE, "--engine", "aptainer"], "apptainer"),
        (["build", "torch-cpuu"], "torch-cpu"),
        (["show", "apps", "resnet-imagnet"], "resnet-imagenet"),
        (["show", "targets", "cpu-2cores"], "cpu-2core"),
        (["data", "get", "fashion-minst"], "fashion-mnist"),
    ],
)
def test_unknown_names_get_the_nearest(words: list[str], hint: str) -> None:
    done = trimaran(*words)
    assert done.returncode == 2
    assert "[name-unknown]" in done.stderr
    assert f"mean {hint}" in done.stderr
    assert "Traceback" not in done.stderr
