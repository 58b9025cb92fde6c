"""The command line: `python -m slope train`."""

from __future__ import annotations

import sys

from slope.settings import TrainSettings
from trainkit import commands

COMMANDS: commands.Commands = {
    "train": (TrainSettings, "fit a line and say how far off it is"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    return commands.run("slope", "A line through points.", COMMANDS, {}, arguments)


if __name__ == "__main__":
    sys.exit(main())
