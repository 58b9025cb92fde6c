"""The command line: `python -m toy_two_networks train`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from toy_two_networks.settings import TrainSettings
from trainkit import exits, options

COMMANDS: dict[str, tuple[type[Any], str]] = {
    "train": (TrainSettings, "learn to make points that look like those of a ring"),
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    top = argparse.ArgumentParser(prog="python -m toy_two_networks")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (settings, text) in COMMANDS.items():
        options.add_options(commands.add_parser(name, help=text, allow_abbrev=False), settings)
    chosen = options.collect(TrainSettings, top.parse_args(arguments))

    def command() -> None:
        chosen.check()
        from toy_two_networks import train  # --help need not wait for PyTorch

        train.train(chosen)

    return exits.run("toy_two_networks train", command)


if __name__ == "__main__":
    sys.exit(main())
