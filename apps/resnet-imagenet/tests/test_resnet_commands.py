"""Test the command line with valid and wrong options, and the command `evaluate`."""

import json
from pathlib import Path

import pytest
import torch

from resnet_imagenet import method
from resnet_imagenet.__main__ import COMMANDS, main
from resnet_imagenet.settings import TrainSettings
from trainkit import commands
from trainkit.console import Counter
from trainkit.testing.refusals import assert_reported


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    said = capsys.readouterr().out
    assert f"python -m resnet_imagenet {command} --" in said
    assert command != "train" or "75 stopped early" in said


def test_the_examples_in_the_help_are_valid() -> None:
    from resnet_imagenet.__main__ import EXAMPLES

    parser = commands.parser("resnet_imagenet", "", COMMANDS, {})
    for text in EXAMPLES.values():
        for line in text.replace("\\\n", " ").splitlines():
            if line.strip().startswith("python -m resnet_imagenet") and "…" not in line:
                parser.parse_args(line.split()[3:])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("train --data d", "needs --out DIR"),
        ("train --out o", "either --data DIR or --synthetic"),
        ("train --out o --data d --synthetic", "either --data DIR or --synthetic"),
        ("train --out o --data d --warmup constant", "needs a --warmup-lr"),
        (
            "train --out o --data d --compile max-autotune --accumulation 2",
            "overwrite the gradients that --accumulation adds up",
        ),
        ("train --out o --data d --resume gone.pt", "--resume gone.pt: no such file"),
        ("evaluate --out o", "needs --data"),
        ("evaluate --data d", "either --out DIR or --checkpoint FILE"),
        ("predict --out o", "needs --data"),
        ("predict --data d --out o --checkpoint c", "either --out DIR or --checkpoint FILE"),
        ("export --to n.onnx", "either --out DIR or --checkpoint FILE"),
        ("export --out o", "needs --to FILE"),
        ("export --out o --to n.pt", "in the format onnx ends with .onnx"),
        ("export --out o --to n.onnx --format torchscript", "ends with .pt"),
        ("export --out o --to n.onnx --image-size 4", "at least 8"),
        ("export --out o --to n.onnx --image-size 9000", "at most 4096 pixels"),
        ("export --out o --to gone/n.onnx", "gone is not a folder"),
        ("plot", "needs --out RUN"),
        ("plot --out a b", "several runs needs --to FILE"),
        ("plot --out a --to n.jpg", "must end with .png, .svg, .pdf"),
        ("plot --out a --to gone/n.png", "gone is not a folder"),
    ],
)
def test_contradictions_end_with_2(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "the following arguments are required: COMMAND"),
        ("train --image-size 9000", "at most 4096 pixels"),
    ],
)
def test_wrong_options_end_with_2(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments.split())
    assert said in capsys.readouterr().err


def test_evaluate_agrees_with_the_training(
    tiny: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = json.loads((run / "result.json").read_text())["evaluation"]
    common = ["evaluate", "--data", str(tiny), "--json"]
    for more in (
        ["--out", str(run)],
        ["--checkpoint", str(run / "checkpoints" / "step-00000028.npz"), "--batch-size", "16"],
    ):
        assert main([*common, *more]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["split"], answer["samples"]) == ("test", 30)
        assert answer["top1"] == result["top1"]
        assert answer["loss"] == pytest.approx(result["loss"], rel=0.02)
    assert main(["evaluate", "--data", str(tiny), "--out", str(run), "--split", "train"]) == 0
    assert "train (100 images)  top-1 " in capsys.readouterr().out


def test_evaluate_refuses_other_classes_and_folders_without_a_checkpoint(
    photographs: Path, tiny: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--data", str(tiny), "--out", str(tmp_path)]) == 3
    assert_reported(capsys.readouterr().err, "checkpoint-missing", tmp_path)
    assert main(["evaluate", "--data", str(tiny), "--out", str(run), "--split", "x"]) == 3
    assert_reported(capsys.readouterr().err, "split-missing", "'x'")


def test_evaluate_refuses_a_gpu_that_is_not_there(
    tiny: Path, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--data", str(tiny), "--out", str(run), "--device", "gpu"]) == 2
    assert_reported(capsys.readouterr().err, "gpu-unavailable", "local rank 0")


def test_compiling_without_a_compiler_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    arguments = ["train", "--synthetic", "--model", "resnet20", "--image-size", "32"]
    assert main([*arguments, "--compile", "default", "--out", str(tmp_path / "run")]) == 2
    assert_reported(capsys.readouterr().err, "program-missing", " no-such-compiler ")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--epochs 2 --warmup-epochs 3", "a warm-up of 21 steps is longer than the training (14 "),
        ("--steps 9 --warmup-epochs 2", "a warm-up of 14 steps is longer than the training (9 "),
        ("--steps 9 --warmup-steps 10", "a warm-up of 10 steps is longer than the training (9 "),
        (
            "--schedule cyclic --cycle-epochs 2 --warmup-epochs 2",
            "a warm-up of 14 steps is longer than all of a cycle but its last step (13 ",
        ),
    ],
)
def test_a_warm_up_that_does_not_fit_is_refused_before_anything_is_written(
    arguments: str, said: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["train", "--data", str(tiny), "--out", str(tmp_path / "run"), "--model", "resnet20"]
    assert main([*common, "--batch-size-per-rank", "16", *arguments.split()]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "--epochs 1",
            "the warm-up of 5 epochs (35 steps) is longer than the training (7 steps): "
            "shortened to 0 steps",
        ),
        ("--epochs 4", "the training (28 steps): shortened to 2 steps"),
        ("--steps 34", "the training (34 steps): shortened to 2 steps"),
        (
            "--schedule cyclic --cycle-epochs 5",
            "all of a cycle but its last step (34 steps): shortened to 2 steps",
        ),
    ],
)
def test_a_usual_warm_up_that_does_not_fit_is_shortened_and_said(
    arguments: str, said: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["train", "--data", str(tiny), "--out", str(tmp_path / "run"), "--model", "resnet20"]
    more = ["--batch-size-per-rank", "16", "--max-steps", "1", "--eval-every", "0"]
    assert main([*common, *more, *arguments.split()]) == 0
    assert said in capsys.readouterr().out


def test_a_usual_warm_up_that_fits_is_what_it_was() -> None:
    settings = TrainSettings(epochs=5)
    assert method.warmup_steps(settings, 7) == 35
    assert method.warmup_note(settings, 7) is None
    for own in (TrainSettings(epochs=1, warmup_epochs=0.5), TrainSettings(warmup_steps=3)):
        assert method.warmup_note(own, 7) is None


def test_evaluate_says_how_far_it_is_on_stderr(
    tiny: Path, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Counter, "EVERY", 0.0)
    options = ["--data", str(tiny), "--out", str(run), "--batch-size", "16", "--json"]
    assert main(["evaluate", *options]) == 0
    out, err = capsys.readouterr()
    json.loads(out)
    said = [line.split(",")[0] for line in err.splitlines()]
    assert said == ["evaluating: 1 of 2 batches", "evaluating: 2 of 2 batches"]


def test_a_foreign_checkpoint_is_named(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`evaluate` refuses a file that contains only weights, and the error names the file.

    Other programs save checkpoints as such files.
    """
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "weights.pt")
    options = ["--data", str(tiny), "--checkpoint", str(tmp_path / "weights.pt")]
    assert main(["evaluate", *options]) == 3
    assert_reported(capsys.readouterr().err, "checkpoint-mismatch", "weights.pt")
