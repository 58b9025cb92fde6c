"""Self-test of the toy's image: a training of some steps learns."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as out:
    options = [f"--out={out}", "--steps=40", "--log-every=10", "--device=cpu"]
    subprocess.run([sys.executable, "-m", "toy_tensorflow", "train", *options], check=True)
    events = map(json.loads, (Path(out) / "metrics.jsonl").read_text().splitlines())
    losses = [event["value"] for event in events if event["key"] == "train_loss"]
assert losses[-1] < losses[0], f"the loss did not fall: {losses}"
print(f"training: loss {losses[0]:.3f} -> {losses[-1]:.3f} in 40 steps")
print("self-test passed")
