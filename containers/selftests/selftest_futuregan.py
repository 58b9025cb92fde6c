"""Self-test of a futuregan image: train networks that grow once, and predict frames as a video.

`predict` writes the video in H.264 with the encoder x264 of the FFmpeg in PyAV's wheel.
"""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import av
import numpy as np
from PIL import Image

FUTUREGAN = [sys.executable, "-m", "futuregan"]

with tempfile.TemporaryDirectory() as out:
    options = [
        "--synthetic", f"--out={out}", "--size=16", "--first-size=8", "--width=4", "--past=2",
        "--future=2", "--transition-epochs=1", "--stabilization-epochs=1",
        "--batch-size-per-rank=219", "--micro-batch=73", "--max-steps=9", "--log-every=3",
        "--device=cpu",
    ]
    subprocess.run([*FUTUREGAN, "train", *options], check=True)
    result = json.loads((Path(out) / "result.json").read_text())
    assert (result["steps"], result["size"]) == (9, 16), f"expected 9 steps, to 16 pixels: {result}"
    print("training: nine steps, over a growth from 8 to 16 pixels")
    frames, video = Path(out) / "frames", Path(out) / "future.mp4"
    frames.mkdir()
    for number in range(4):
        pixels = np.full((16, 16, 3), 60 * number, np.uint8)
        Image.fromarray(pixels).save(frames / f"{number}.png")
    words = [f"--data={frames}", f"--out={out}", f"--to={video}", "--device=cpu"]
    subprocess.run([*FUTUREGAN, "predict", *words], check=True)
    with av.open(str(video)) as container:
        codec = container.streams.video[0].codec_context.name
        count = sum(1 for _ in container.decode(video=0))
assert (codec, count) == ("h264", 4), f"expected 4 frames of H.264, found {count} of {codec}"
print("prediction: a video of two frames given and two made")
print("self-test passed")
