"""Run contestants alternately (A B C, A B C, …), each time in a new process."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sidebyside.spread import Spread

FAILED, UNAVAILABLE = 4, 69
"""Exit codes: a contestant failed; this machine lacks a requirement of the benchmark."""

BENCHMARKS = Path(__file__).resolve().parents[1]


class BenchmarkError(Exception):
    """An error that ends the benchmark with a message and an exit code."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def printed(stdout: str, _folder: Path) -> float:
    """Return the rate in the last line of `stdout`, such as `{"rate": 12.3}`.

    Raises:
        ValueError: the last line has no rate.
    """
    lines = stdout.strip().splitlines()
    try:
        return float(json.loads(lines[-1])["rate"])
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the last line is not a rate: {lines[-1:]}") from error


@dataclass(frozen=True)
class Contestant:
    """A command whose rate is measured.

    Attributes:
        name: name in the tables.
        argv: function that returns the command, given an empty folder for its files.
        environment: all environment variables of the command.
        read: function that returns the rate from the standard output and the folder.
        unit: unit of the rate.
    """

    name: str
    argv: Callable[[Path], Sequence[str]]
    environment: Mapping[str, str]
    read: Callable[[str, Path], float] = printed
    unit: str = "img/s"


def alternate(
    contestants: Sequence[Contestant],
    rounds: int,
    folder: Path,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> dict[str, Spread]:
    """Run every contestant once per round, in order; return name -> rates, one per round.

    An interrupt (SIGINT) after the first round ends the measurement; complete rounds count.

    Args:
        contestants: contestants with different names.
        rounds: number of rounds, at least 1.
        folder: parent of the contestants' folders, which are removed after each run.
        say: function that prints a line of progress.

    Raises:
        BenchmarkError: a contestant failed; the message has the end of its output.
        KeyboardInterrupt: an interrupt occurred in the first round.
    """
    values: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    try:
        for number in range(1, rounds + 1):
            for contestant in contestants:
                rate = once(contestant, folder)
                values[contestant.name].append(rate)
                say(f"round {number}/{rounds}  {contestant.name}: {rate:.2f} {contestant.unit}")
    except KeyboardInterrupt:
        complete = min(map(len, values.values()))
        if complete == 0:
            raise
        say(f"interrupted: the figures are those of the {complete} complete of {rounds} rounds")
    complete = min(map(len, values.values()))
    return {name: Spread(tuple(rates[:complete])) for name, rates in values.items()}


def once(contestant: Contestant, folder: Path) -> float:
    """Run a contestant once; return its rate.

    Raises:
        BenchmarkError: the contestant failed.
    """
    with tempfile.TemporaryDirectory(prefix="run-", dir=folder) as own:
        argv = list(contestant.argv(Path(own)))
        done = subprocess.run(
            argv, env=dict(contestant.environment), cwd=BENCHMARKS, capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL,
        )
        try:
            if done.returncode == 0:
                return contestant.read(done.stdout, Path(own))
            reason = f"it ended with code {done.returncode}"
        except (OSError, ValueError) as error:
            reason = str(error)
    tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
    raise BenchmarkError(f"{contestant.name}: {reason}\n  command: {' '.join(argv)}\n{tail}")
