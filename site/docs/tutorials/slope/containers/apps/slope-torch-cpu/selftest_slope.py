"""Self-test of the image: a training of a few steps ends successfully."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as out:
    words = [sys.executable, "-m", "slope", "train", f"--out={out}", "--steps=20", "--device=cpu"]
    subprocess.run(words, check=True)
    result = json.loads((Path(out) / "result.json").read_text())
if result["steps"] != 20:
    sys.exit(f"20 steps were asked for: {result}")
