"""The command line: `python -m toy_tensorflow train`."""

from __future__ import annotations

import sys

from toy_tensorflow.settings import TrainSettings
from trainkit import commands

COMMANDS: commands.Commands = {
    "train": (TrainSettings, "learn from two coordinates whether their product is positive"),
}
main = commands.entry_point("toy_tensorflow", "A toy of the app contract.", COMMANDS)

if __name__ == "__main__":
    sys.exit(main())
