"""The command line of an app, `python -m PACKAGE COMMAND`, and the options that apps share.

Only arguments are handled here; a command's module, `PACKAGE.COMMAND` with its function
`main(settings)`, is imported when it runs, so `--help` need not wait for a framework.
"""

# ruff: noqa: RUF009 - `option` returns a dataclasses.field, which may stand as a default
from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainkit import atomic, exits, options, streams
from trainkit.exits import ArgumentError
from trainkit.options import option

Commands = Mapping[str, tuple[type[Any], str]]
"""Name -> its settings, a dataclass of options with a method `check()`, and one line about it."""
PICTURES = (".png", ".svg", ".pdf")
EXIT_CODES = """\
exit codes: 0 done, 2 bad arguments, 3 bad data, 4 diverged, 69 another rank was lost, 70 the
ranks have different weights, 74 checkpoint not written, 75 stopped early by SIGTERM, SIGUSR1,
SIGHUP or Ctrl-C and resumable"""


def parser(
    package: str, text: str, commands: Commands, examples: Mapping[str, str]
) -> argparse.ArgumentParser:
    """Return the argument parser of all commands.

    Args:
        package: of the app.
        text: one sentence about it.
        commands: what it can do.
        examples: what `--help` of a command ends with; of one that trains the exit codes follow.
    """
    top = argparse.ArgumentParser(
        prog=f"python -m {package}", description=text,
        epilog="`COMMAND --help` shows the options and examples of a command.",
    )
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (settings, about) in commands.items():
        command = subparsers.add_parser(
            name, help=about, description=about[0].upper() + about[1:] + ".",
            epilog=_epilog(examples.get(name), settings),
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        )
        options.add_options(command, settings)
    return top


def _epilog(examples: str | None, settings: type[Any]) -> str:
    trains = "resume" in settings.__dataclass_fields__
    return "\n\n".join(filter(None, [examples, EXIT_CODES if trains else None]))


def run(
    package: str, text: str, commands: Commands, examples: Mapping[str, str],
    arguments: Sequence[str] | None,
) -> int:
    """Run the command that `arguments` (default: those of this process) name; return its exit code.

    The others are as `parser` takes them.

    Raises:
        SystemExit: the arguments are wrong, or ask for help.
    """
    if arguments is None:
        streams.in_utf8()
    parsed = parser(package, text, commands, examples).parse_args(arguments)
    settings: Any = options.collect(commands[parsed.command][0], parsed)

    def command() -> None:
        settings.check()
        importlib.import_module(f"{package}.{parsed.command}").main(settings)

    return exits.run(f"{package} {parsed.command}", command)


@dataclass(frozen=True)
class PlotSettings:
    """Options of `plot`: see `trainkit.plots`."""

    out: list[Path] | None = option(
        None, "folders of one or several runs, finished or not", Path, metavar="RUN", nargs="+"
    )
    to: Path | None = option(
        None, "picture to write, .png, .svg or .pdf (default for one run: its plot.png)", Path
    )

    def check(self) -> None:
        """Refuse missing options, and a file that is there already."""
        if not self.out:
            raise ArgumentError("plot needs --out RUN [RUN ...]")
        if self.to is None:
            if len(self.out) > 1:
                raise ArgumentError("plot of several runs needs --to FILE")
            return
        check_picture(self.to)


def check_picture(path: Path) -> None:
    """Refuse a picture whose name has no known ending, or which is there already.

    Raises:
        ArgumentError: so it is.
    """
    if path.suffix not in PICTURES:
        raise ArgumentError(f"{path}: the name of a picture must end with {', '.join(PICTURES)}")
    atomic.check_new(path)
