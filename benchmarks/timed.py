"""Measure how many times per second a command can run: `python -m timed COMMAND...`.

The command runs in a new process, and the time includes its start. Its output is discarded. The
command must exit with the code of a verdict (PASS, FAIL or NO REFERENCE). Any other exit code is an
error, which ends the benchmark.
"""

from __future__ import annotations

import subprocess
import sys
import time

from sidebyside.timing import print_rate

VERDICTS = (0, 1, 5)
"""Exit codes of the tool for PASS, FAIL and NO REFERENCE."""


def main(words: list[str]) -> int:
    """Run the command once, print its rate in runs per second, and return the exit code.

    If the command exits with the code of a verdict (PASS, FAIL or NO REFERENCE), the exit code is
    0, else it is the exit code of the command.
    """
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
