"""The command line: `python -m toy_two_networks train`."""

from __future__ import annotations

import sys

from toy_two_networks.settings import TrainSettings
from trainkit import commands

COMMANDS: commands.Commands = {
    "train": (TrainSettings, "learn to make points that look like those of a ring"),
}
main = commands.entry_point("toy_two_networks", "A toy of the app contract.", COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
