"""Self-test of a keras-resnet image: train with two replicas on the CPU, and predict a class."""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

APP = [sys.executable, "-m", "keras_resnet"]

with tempfile.TemporaryDirectory() as out:
    options = [
        "--synthetic", f"--out={out}", "--model=MobileNetV2", "--size=32", "--max-steps=2",
        "--batch-size=8", "--eval-every=0", "--log-every=1", "--device=cpu",
        "--strategy=mirrored", "--replicas=2",
    ]
    subprocess.run([*APP, "train", *options], check=True)
    steps = json.loads((Path(out) / "result.json").read_text())["steps"]
    assert steps == 2, f"expected 2 steps, found {steps}"
    print("training: two steps of MobileNetV2 on two replicas")
    picture = Path(out) / "image.png"
    Image.fromarray(np.arange(96 * 96, dtype=np.uint8).reshape(96, 96)).save(picture)
    found = subprocess.run(
        [*APP, "predict", f"--out={out}", "--json", "--device=cpu", "--top=10",
         f"--data={picture}"],
        check=True, stdout=subprocess.PIPE,
    )
    classes = json.loads(found.stdout)["classes"]
    assert len(classes) == 10, f"expected 10 classes, found {classes}"
    print("prediction: 10 classes of an image")
print("self-test passed")
