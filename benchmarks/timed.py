"""Measure how many times per second a command can run: `python -m timed COMMAND...`.

The command runs in a new process, whose start counts. Its output is discarded. An exit code that is
not that of a verdict ends the benchmark.
"""

from __future__ import annotations

import subprocess
import sys
import time

from sidebyside.timing import print_rate

VERDICTS = (0, 1, 5)
"""Exit codes of the tool for PASS, FAIL and NO REFERENCE."""


def main(words: list[str]) -> int:
    """Run the command once; return its exit code if it is not that of a verdict, else 0."""
    begun = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - begun
    if done.returncode not in VERDICTS:
        print(done.stderr, file=sys.stderr)
        return done.returncode
    print_rate(1 / seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
