"""Real trainings of a small network on small images: stops, changed data, synthetic input."""

import fcntl
import os
import pty
import signal
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from resnet_imagenet.__main__ import main
from resnet_imagenet.state import Trained
from trainkit.console import Counter
from trainkit.testing import reading

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("which", "steps", "epochs"), [(1, 28, 4), (4, 28, 4), (2, 12, 2)])
def test_a_stop_during_an_evaluation_repeats_it(
    which: int, steps: int, epochs: int, tiny: Path, tmp_path: Path, train: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from resnet_imagenet import train as module

    real, calls = module.evaluate, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == which:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*arguments)

    run, whole = tmp_path / "run", tmp_path / "whole"
    length = ["--max-steps", str(steps)]
    monkeypatch.setattr(module, "evaluate", interrupted)
    assert train(tiny, run, *length) == 75
    monkeypatch.undo()
    assert train(tiny, run, *length, "--resume", "auto") == 0
    assert train(tiny, whole, *length) == 0
    assert reading.same(reading.parts(run), reading.parts(whole))
    assert reading.told(run) == reading.told(whole)
    assert reading.result(run) == reading.result(whole)
    keys = [line["key"] for line in reading.lines(run)]
    assert keys.count("epoch_stop") == keys.count("eval_start") == epochs


def test_a_run_killed_in_its_last_evaluation_is_evaluated_when_it_goes_on(
    tiny: Path, tmp_path: Path, train: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 12, the last one, has a checkpoint, so that only the evaluation is left to do."""
    from resnet_imagenet import train as module

    class Killed(BaseException):
        pass

    out, options = tmp_path / "run", ["--max-steps", "12", "--eval-every", "2"]
    newest = out / "checkpoints" / "step-00000012.npz"

    def kill(*arguments):
        while not newest.exists():  # it is written in the background
            time.sleep(0.01)
        raise Killed

    monkeypatch.setattr(module, "evaluate", kill)
    with pytest.raises(Killed):
        train(tiny, out, *options)
    monkeypatch.undo()
    assert train(tiny, out, *options, "--resume", "auto") == 0
    assert 0 < reading.result(out)["evaluation"]["top1"] <= 1


def test_ranks_average_the_statistics_of_both_networks_in_the_same_order() -> None:
    networks = [torch.nn.BatchNorm1d(2) for _ in range(20)]  # a set would be in order by chance
    for network in networks:
        average = torch.optim.swa_utils.AveragedModel(network)
        averaged: list[torch.Tensor] = []
        strategy = SimpleNamespace(average=averaged.extend)
        optimizer = torch.optim.SGD(network.parameters())
        Trained(None, None, strategy, network, optimizer, average, None).before_save()
        own, means = network.running_mean, average.module.running_mean
        assert [id(tensor) for tensor in averaged[::2]] == [id(own), id(means)]


def test_a_checkpoint_of_other_data_is_refused(
    tiny: Path, numbered: Path, tmp_path: Path, train, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(tiny, out, "--max-steps", "3") == 0
    (out / "result.json").unlink()
    assert train(numbered, out, "--resume", "auto") == 2
    assert "data: tiny " in capsys.readouterr().err


def test_a_terminal_that_is_closed_leaves_a_checkpoint(tiny: Path, tmp_path: Path, start) -> None:
    out, (terminal, inner) = tmp_path / "run", pty.openpty()

    def lead() -> None:
        os.setsid()
        fcntl.ioctl(inner, termios.TIOCSCTTY, 0)

    streams = {"stdin": inner, "stdout": inner, "stderr": inner, "preexec_fn": lead}
    child = start(tiny, out, "--epochs", "400", "--eval-every", "0", **streams)
    os.close(inner)
    said = b""
    while b"step 5/" not in said:
        said += os.read(terminal, 1000)
    os.close(terminal)  # the kernel sends SIGHUP
    assert child.wait(60) == 75
    assert reading.lines(out)[-1]["metadata"]["status"] == "aborted"
    assert list((out / "checkpoints").iterdir())


def test_a_training_says_how_far_its_evaluation_is(
    tiny: Path, tmp_path: Path, train, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Counter, "EVERY", 0.0)
    assert train(tiny, tmp_path / "run", "--max-steps", "1") == 0
    said = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert "evaluating: 1 of 2 batches" in said


def test_synthetic_needs_no_data_and_measures_throughput(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = "--synthetic --model resnet20 --max-steps 4 --batch-size-per-rank 8 --log-every 2"
    assert main(["train", "--out", str(out), *arguments.split()]) == 0
    assert [step for step, _ in reading.values(out, "throughput")] == [2, 4]
    assert reading.result(out)["evaluation"] is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("schedule", ["cosine", "polynomial"])
def test_photographs_train_in_both_precisions_and_schedules(
    photographs: Path, tmp_path: Path, precision: str, schedule: str
) -> None:
    arguments = (
        "--model resnet18 --image-size 64 --epochs 1 --warmup-epochs 0.5 --batch-size-per-rank 4 "
        f"--base-lr 0.1 --base-batch 256 --log-every 1 --precision {precision} "
        f"--schedule {schedule}"
    )
    out = tmp_path / "run"
    assert main(["train", "--data", str(photographs), "--out", str(out), *arguments.split()]) == 0
    rates = [rate for _, rate in reading.values(out, "learning_rate")]
    assert rates == pytest.approx([0.1 * 4 / 256] * 2)
