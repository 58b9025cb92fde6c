"""Self-test of the toy's image: a short training, with a growth of the generator, completes."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as out:
    options = [f"--out={out}", "--steps=40", "--grow-at=20", "--log-every=10", "--device=cpu"]
    subprocess.run([sys.executable, "-m", "toy_two_networks", "train", *options], check=True)
    result = json.loads((Path(out) / "result.json").read_text())
assert result["steps"] == 40, f"expected 40 steps: {result}"
print(f"training: distance {result['evaluation']['distance']:.3f} after 40 steps")
print("self-test passed")
