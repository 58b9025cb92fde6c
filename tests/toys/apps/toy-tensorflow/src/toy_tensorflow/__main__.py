"""The command line: `python -m toy_tensorflow train`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from toy_tensorflow.settings import TrainSettings
from trainkit import exits, options

COMMANDS: dict[str, tuple[type[Any], str]] = {
    "train": (TrainSettings, "learn from two coordinates whether their product is positive"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    top = argparse.ArgumentParser(prog="python -m toy_tensorflow")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (settings, text) in COMMANDS.items():
        options.add_options(commands.add_parser(name, help=text, allow_abbrev=False), settings)
    chosen = options.collect(TrainSettings, top.parse_args(arguments))

    def command() -> None:
        chosen.check()
        from toy_tensorflow import train  # --help need not wait for TensorFlow

        train.train(chosen)

    return exits.run("toy_tensorflow train", command)


if __name__ == "__main__":
    sys.exit(main())
