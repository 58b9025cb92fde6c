"""The seconds that a run takes beside its training command: `python -m overhead COMMAND...`.

The command is a whole `trimaran run ...`, which gets a folder of its own as `--out`. Taken off is
what `run.json` gives as the seconds of the command that it ran, to a tenth of a second.
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
    """Run the command once; return its exit code where that is no verdict."""
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
