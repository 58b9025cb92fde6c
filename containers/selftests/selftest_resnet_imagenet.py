"""Self-test of the resnet-imagenet images: commands print their help, and a training learns."""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import json
import subprocess
import sys
import tempfile
from pathlib import Path

APP = [sys.executable, "-m", "resnet_imagenet"]


def check_help() -> None:
    """Check that each verb prints its options with --help."""
    for verb in ("train", "evaluate", "predict", "export", "plot"):
        text = subprocess.run([*APP, verb, "--help"], check=True, capture_output=True, text=True)
        assert "--out" in text.stdout, f"{verb} --help lacks --out"


def check_training() -> None:
    """Train five steps on one random batch; check that they are logged and lower the loss."""
    with tempfile.TemporaryDirectory() as out:
        options = [
            f"--out={out}", "--synthetic", "--model=resnet20", "--image-size=32", "--max-steps=5",
            "--batch-size-per-rank=16", "--base-lr=0.1", "--epochs=1", "--warmup-epochs=0",
            "--eval-every=0", "--log-every=1",
        ]
        subprocess.run([*APP, "train", *options], check=True, stdout=subprocess.DEVNULL)
        lines = (Path(out) / "metrics.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
    losses = [event["value"] for event in events if event["key"] == "train_loss"]
    assert len(losses) == 5, f"expected 5 losses, found {losses}"
    assert losses[-1] < losses[0], f"the loss did not fall: {losses}"
    print(f"training: loss {losses[0]:.3f} -> {losses[-1]:.3f} in 5 steps")


if __name__ == "__main__":
    check_help()
    check_training()
    print("self-test passed")
