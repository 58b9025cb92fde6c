"""The app contract, kept by real trainings of a small network on small images."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from resnet_imagenet.__main__ import main
from resnet_imagenet.state import Trained
from trainkit import checkpoint
from trainkit.console import Counter

pytestmark = pytest.mark.slow

LAST = "step-00000028.npz"


def lines(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def values(out: Path, key: str) -> list[tuple[int, float]]:
    return [(x["metadata"]["step"], x["value"]) for x in lines(out) if x["key"] == key]


def weights(out: Path, name: str = LAST) -> dict[str, np.ndarray]:
    return checkpoint.load(out / "checkpoints" / name)["parts"]["network"]


def equal(one: dict[str, np.ndarray], two: dict[str, np.ndarray]) -> bool:
    return one.keys() == two.keys() and all(np.array_equal(one[key], two[key]) for key in one)


CURVES = ("train_loss", "learning_rate", "eval_accuracy", "eval_accuracy_top5", "eval_loss")


@pytest.fixture(scope="module")
def reference(tiny: Path, start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an uninterrupted run, in a process like those that will be killed."""
    out = tmp_path_factory.mktemp("reference") / "run"
    finish(start(tiny, out))
    return out


def finish(child: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for `child`, check its exit code, return what it said."""
    said = child.communicate(timeout=120)[0]
    assert child.returncode == code, said
    return said


def test_a_run_learns_and_writes_what_the_contract_says(reference: Path) -> None:
    result = json.loads((reference / "result.json").read_text())
    assert result["status"] == "success"
    assert (result["steps"], result["epochs"]) == (28, 4)
    assert result["evaluation"]["top1"] > 0.9
    assert result["evaluation"]["top5"] == 1.0
    environment = json.loads((reference / "environment.json").read_text())
    assert environment["threads"]["intra_op"] == 1
    assert environment["packages"]["nvidia-dali-cuda120"]
    names = sorted(p.name for p in (reference / "checkpoints").iterdir())
    assert names == ["step-00000027.npz", LAST]


def test_metrics_tell_the_whole_run_in_order(reference: Path) -> None:
    keys = [line["key"] for line in lines(reference)]
    assert keys[:5] == [
        "run_start",
        "seed",
        "global_batch_size",
        "train_samples",
        "eval_samples",
    ]
    assert keys[5] == "epoch_start"
    assert keys[-1] == "run_stop"
    assert lines(reference)[-1]["metadata"]["status"] == "success"
    assert keys.count("epoch_start") == keys.count("epoch_stop") == 4
    assert [step for step, _ in values(reference, "eval_accuracy")] == [7, 14, 21, 28]
    # every 5 steps, and the rest of each epoch of 7
    reported = [step for step, _ in values(reference, "train_loss")]
    assert reported == [5, 7, 10, 14, 15, 20, 21, 25, 28]
    rates = [rate for _, rate in values(reference, "learning_rate")]
    assert max(rates) == pytest.approx(0.1)
    assert rates[1:] == sorted(rates[1:], reverse=True)
    assert all(value > 0 for _, value in values(reference, "throughput"))
    assert all(0 <= value < 1 for _, value in values(reference, "data_wait_fraction"))


def test_equal_settings_give_equal_weights_and_another_seed_others(
    tiny: Path, tmp_path: Path, start, reference: Path
) -> None:
    finish(start(tiny, tmp_path / "other", "--seed", "18"))
    finish(start(tiny, tmp_path / "same", "--threads", "2"))
    assert equal(weights(reference), weights(tmp_path / "same"))
    assert not equal(weights(reference), weights(tmp_path / "other"))


def test_kill_9_at_random_moments_and_resume_gives_the_same_weights(
    tiny: Path, tmp_path: Path, start, reference: Path
) -> None:
    out, random = tmp_path / "run", torch.Generator()
    random.seed()
    for _ in range(3):
        child = start(tiny, out, "--resume", "auto")
        for line in child.stdout:  # let it make some way, then any moment will do
            if "step" in line and "/28" in line:
                break
        time.sleep(float(torch.rand((), generator=random)) * 0.5)
        child.kill()
        child.communicate()
    finish(start(tiny, out, "--resume", "auto"))
    assert equal(weights(reference), weights(out))
    for key in CURVES:
        assert values(out, key) == values(reference, key)
    assert len([x for x in lines(out) if x["key"] in ("run_start", "run_stop")]) == 2


def test_a_signal_ends_with_75_and_resume_gives_the_same_weights(
    tiny: Path, tmp_path: Path, start, reference: Path
) -> None:
    out = tmp_path / "run"
    for number, moment in ((signal.SIGTERM, "step 5/28"), (signal.SIGUSR1, "step 15/28")):
        child = start(tiny, out, "--resume", "auto")
        for line in child.stdout:
            if moment in line:
                break
        child.send_signal(number)
        assert f"stopped by {number.name} after step" in finish(child, 75)
        assert lines(out)[-1]["metadata"]["status"] == "aborted"
        assert not (out / "result.json").exists()
    assert "going on from step" in finish(start(tiny, out, "--resume", "auto"))
    assert equal(weights(reference), weights(out))
    for key in CURVES:
        assert values(out, key) == values(reference, key)


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

    run, whole, last = tmp_path / "run", tmp_path / "whole", f"step-{steps:08d}.npz"
    length = ["--max-steps", str(steps)]
    monkeypatch.setattr(module, "evaluate", interrupted)
    assert train(tiny, run, *length) == 75
    monkeypatch.undo()
    assert train(tiny, run, *length, "--resume", "auto") == 0
    assert train(tiny, whole, *length) == 0
    assert equal(weights(run, last), weights(whole, last))
    for key in CURVES:
        assert values(run, key) == values(whole, key)
    keys = [line["key"] for line in lines(run)]
    assert keys.count("epoch_stop") == keys.count("eval_start") == epochs
    assert scores(run) == scores(whole)


def scores(out: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((out / "result.json").read_text())["evaluation"]
    return found


def test_a_run_killed_in_its_last_evaluation_is_evaluated_when_it_goes_on(
    tiny: Path, tmp_path: Path, train: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 12 has a checkpoint of its own, for 12 is a multiple of --checkpoint-every."""
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
    assert 0 < scores(out)["top1"] <= 1


def test_going_on_from_an_earlier_checkpoint_sets_the_later_ones_aside(
    tiny: Path, tmp_path: Path, train, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(tiny, out, "--max-steps", "14") == 0
    (out / "result.json").unlink()
    earlier = out / "checkpoints" / "step-00000012.npz"
    assert train(tiny, out, "--resume", str(earlier), "--max-steps", "13") == 0
    assert "step-00000014.npz is newer than the checkpoint to go on from" in capsys.readouterr().out
    names = sorted(path.name for path in earlier.parent.iterdir())
    assert names == ["step-00000012.npz", "step-00000013.npz", "step-00000014.npz.abandoned"]
    (out / "result.json").unlink()
    assert train(tiny, out, "--resume", "auto") == 0
    assert "going on from step 13 of 28" in capsys.readouterr().out


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


def test_a_truncated_checkpoint_falls_back_to_the_one_before(
    tiny: Path, tmp_path: Path, train, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(tiny, out, "--max-steps", "13") == 0
    (out / "result.json").unlink()  # as if it had been stopped there
    newest = out / "checkpoints" / "step-00000013.npz"
    newest.write_bytes(newest.read_bytes()[:5000])
    assert train(tiny, out, "--resume", "auto") == 0
    said = capsys.readouterr().out
    assert "step-00000013.npz is truncated or damaged" in said
    assert "going on from step 12 of 28" in said
    assert [step for step, _ in values(out, "eval_accuracy")] == [7, 14, 21, 28]


def test_an_existing_run_is_never_overwritten(
    tiny: Path, train, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (reference / "metrics.jsonl").read_bytes()
    assert train(tiny, reference) == 2
    assert "already has a run" in capsys.readouterr().err
    assert train(tiny, reference, "--resume", "auto") == 0
    assert "nothing to go on with" in capsys.readouterr().out
    assert (reference / "metrics.jsonl").read_bytes() == before


def test_a_checkpoint_of_other_settings_is_refused(
    tiny: Path, tmp_path: Path, train, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(tiny, out, "--max-steps", "3") == 0
    (out / "result.json").unlink()
    assert train(tiny, out, "--resume", "auto", "--seed", "99") == 2
    assert "seed: 17 then, 99 now" in capsys.readouterr().err


def test_a_checkpoint_of_other_data_is_refused(
    tiny: Path, numbered: Path, tmp_path: Path, train, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(tiny, out, "--max-steps", "3") == 0
    (out / "result.json").unlink()
    assert train(numbered, out, "--resume", "auto") == 2
    assert "data: tiny " in capsys.readouterr().err


def test_a_checkpoint_file_starts_a_new_folder(
    tiny: Path, tmp_path: Path, train, reference: Path
) -> None:
    assert train(tiny, tmp_path / "a", "--max-steps", "14") == 0
    file = tmp_path / "a" / "checkpoints" / "step-00000014.npz"
    assert train(tiny, tmp_path / "b", "--resume", str(file)) == 0
    assert [step for step, _ in values(tmp_path / "b", "eval_accuracy")] == [21, 28]


def test_a_forged_result_does_not_end_a_training(
    tiny: Path, tmp_path: Path, train, reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(tiny, out, "--max-steps", "14") == 0
    (out / "result.json").write_text("{}")
    assert train(tiny, out, "--resume", "auto") == 0
    assert "result.json is not the end of this run" in capsys.readouterr().out
    assert json.loads((out / "result.json").read_text())["steps"] == 28
    assert train(tiny, out, "--resume", "auto") == 0
    assert "nothing to go on with" in capsys.readouterr().out


def test_metrics_that_nobody_could_read_are_found_before_the_training(
    tiny: Path, tmp_path: Path, train, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert train(tiny, out, "--max-steps", "14") == 0
    (out / "result.json").unlink()
    content = (out / "metrics.jsonl").read_bytes()
    (out / "metrics.jsonl").write_bytes(content[:100])
    assert train(tiny, out, "--resume", "auto") == 3
    said = capsys.readouterr().err
    assert "metrics.jsonl has 100 bytes" in said
    assert "restore it from a copy" in said
    (out / "metrics.jsonl").write_bytes(content)
    assert train(tiny, out, "--resume", "auto") == 0


def test_a_second_training_in_the_same_folder_is_refused(
    tiny: Path, tmp_path: Path, start, train, capsys: pytest.CaptureFixture[str]
) -> None:
    """As when a batch job is started again while the first one has not ended."""
    out = tmp_path / "run"
    first = start(tiny, out, "--epochs", "400", "--eval-every", "0")
    for line in first.stdout:
        if "step 5/" in line:
            break
    more = ["--epochs", "400", "--eval-every", "0", "--resume", "auto"]
    assert train(tiny, out, *more) == 2
    assert "another process trains in" in capsys.readouterr().err
    first.terminate()
    finish(first, 75)
    steps = [step for step, _ in values(out, "train_loss")]
    assert steps == sorted(set(steps))


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
    assert lines(out)[-1]["metadata"]["status"] == "aborted"
    assert list((out / "checkpoints").iterdir())


def test_a_training_says_how_far_its_evaluation_is(
    tiny: Path, tmp_path: Path, train, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Counter, "EVERY", 0.0)
    assert train(tiny, tmp_path / "run", "--max-steps", "1") == 0
    said = [line.split(",")[0] for line in capsys.readouterr().out.splitlines()]
    assert "evaluating: 1 of 2 batches" in said


def test_divergence_ends_with_4_and_names_the_step(
    tiny: Path, tmp_path: Path, train, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tiny, tmp_path / "run", "--base-lr", "1e30", "--warmup-epochs", "0") == 4
    assert "at step " in (said := capsys.readouterr().err)
    assert "the loss is" in said
    assert lines(tmp_path / "run")[-1]["metadata"]["status"] == "aborted"
    assert not (tmp_path / "run" / "result.json").exists()


def test_bad_data_ends_with_3(
    tiny: Path, tmp_path: Path, train, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(tmp_path / "nowhere", tmp_path / "run") == 3
    assert "nowhere/dataset.json does not exist" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_full_disk_ends_with_74_and_keeps_the_checkpoint(
    tiny: Path,
    tmp_path: Path,
    train,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import shutil

    real = shutil.disk_usage
    calls: list[int] = []

    def full_after_two(path):
        calls.append(1)
        return real(path)._replace(free=0) if len(calls) > 2 else real(path)

    monkeypatch.setattr(shutil, "disk_usage", full_after_two)
    assert train(tiny, tmp_path / "run") == 74
    assert "step-00000006.npz is intact" in capsys.readouterr().err
    monkeypatch.undo()
    assert train(tiny, tmp_path / "run", "--resume", "auto") == 0


def test_synthetic_needs_no_data_and_measures_throughput(tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = "--synthetic --model resnet20 --max-steps 4 --batch-size-per-rank 8 --log-every 2"
    assert main(["train", "--out", str(out), *arguments.split()]) == 0
    assert [step for step, _ in values(out, "throughput")] == [2, 4]
    assert json.loads((out / "result.json").read_text())["evaluation"] is None


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
    rates = [rate for _, rate in values(out, "learning_rate")]
    assert rates == pytest.approx([0.1 * 4 / 256] * 2)
