"""The command line: `python -m slope train`."""

from __future__ import annotations

import sys

from slope.settings import TrainSettings
from trainkit import commands

COMMANDS: commands.Commands = {
    "train": (TrainSettings, "fit a line and measure its error"),
}
main = commands.entry_point("slope", "A line through points.", COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
