"""Self-test of a chexnet image: train MobileNetV2 for two steps, and predict findings."""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

CHEXNET = [sys.executable, "-m", "chexnet"]

with tempfile.TemporaryDirectory() as out:
    options = [
        "--synthetic", f"--out={out}", "--model=mobilenetv2", "--size=64", "--max-steps=2",
        "--batch-size-per-rank=8", "--eval-every=0", "--log-every=1", "--device=cpu",
    ]
    subprocess.run([*CHEXNET, "train", *options], check=True)
    steps = json.loads((Path(out) / "result.json").read_text())["steps"]
    assert steps == 2, f"expected 2 steps, found {steps}"
    print("training: two steps of MobileNetV2")
    picture = Path(out) / "image.png"
    Image.fromarray(np.arange(96 * 96, dtype=np.uint8).reshape(96, 96)).save(picture)
    found = subprocess.run(
        [*CHEXNET, "predict", f"--out={out}", "--json", "--device=cpu", f"--data={picture}"],
        check=True, stdout=subprocess.PIPE,
    )
    (about,) = json.loads(found.stdout)["images"]
    assert len(about["findings"]) == 14, f"expected 14 findings, found {about}"
    print("prediction: 14 findings of an image")
print("self-test passed")
