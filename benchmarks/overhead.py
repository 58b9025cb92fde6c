"""Measure the time of a run besides its training command: `python -m overhead COMMAND...`.

COMMAND is a complete `trimaran run ...`, to which this script adds `--out` with a temporary folder.
The result is the elapsed time minus the time of the training command, which `run.json` contains
with a resolution of 0.1 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sidebyside.timing import print_rate
from timed import VERDICTS


def main(words: list[str]) -> int:
    """Run the command once, print its overhead in seconds, and return the exit code.

    If the command exits with the code of a verdict (PASS, FAIL or NO REFERENCE), the exit code is
    0, else it is the exit code of the command.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        begun = time.perf_counter()
        done = subprocess.run(
            [*words, "--out", str(out)], capture_output=True, text=True, check=False
        )
        seconds = time.perf_counter() - begun
        if done.returncode not in VERDICTS:
            print(done.stderr, file=sys.stderr)
            return done.returncode
        print_rate(seconds - json.loads((out / "run.json").read_text())["seconds"])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
