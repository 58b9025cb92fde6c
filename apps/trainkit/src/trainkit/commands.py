"""The command line of an app: `python -m PACKAGE COMMAND`.

This module parses arguments only. It imports the module of a command, `PACKAGE.COMMAND` with its
function `main(settings)`, when the command runs, so that `--help` does not load a framework.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from trainkit import exits, options, plots, streams
from trainkit.common_options import PlotSettings

Commands = Mapping[str, tuple[type[Any], str]]
"""Command name -> class of its settings, and description of the command in one line. The class is a
dataclass of options with a method `check()`."""
PLOT = (PlotSettings, "draw the curves of runs, finished or not")
"""The command `plot`, which every app can list among its commands."""
EXIT_CODES = """\
exit codes: 0 done, 2 bad arguments, 3 bad data, 4 diverged, 69 another rank was lost, 70 the
ranks have different weights, 74 checkpoint not written, 75 stopped early by SIGTERM, SIGUSR1,
SIGHUP or Ctrl-C and resumable"""


def entry_point(
    package: str, description: str, commands: Commands,
    examples: Mapping[str, str] | None = None, curves: plots.Look | None = None,
) -> Callable[..., int]:
    """Return the function `main` of an app, which runs one of its commands.

    Args:
        package: import name of the app.
        description: one sentence that describes the app.
        commands: the commands of the app.
        examples: command -> the examples at the end of its `--help`.
        curves: content of the picture that `plot` draws; None if the app has no command `plot`.
    """

    def main(arguments: Sequence[str] | None = None) -> int:
        """Run one command; return its exit code.

        Args:
            arguments: the arguments after `python -m PACKAGE`; default: the arguments of this
                process.

        Raises:
            SystemExit: the arguments are wrong, or request help.
        """
        if arguments is None:
            streams.in_utf8()
        parsed = parser(package, description, commands, examples or {}).parse_args(arguments)
        name = parsed.command
        settings: Any = options.collect(commands[name][0], parsed)

        def command() -> None:
            settings.check()
            if isinstance(settings, PlotSettings) and curves is not None:
                plots.main(settings, curves)
            else:
                importlib.import_module(f"{package}.{name}").main(settings)

        return exits.run(f"{package} {name}", command)

    return main


def parser(
    package: str, description: str, commands: Commands, examples: Mapping[str, str]
) -> argparse.ArgumentParser:
    """Return the argument parser of all commands.

    Args:
        package: import name of the app.
        description: one sentence that describes the app.
        commands: the commands of the app.
        examples: command -> the examples at the end of its `--help`. The help of a training
            lists the exit codes after them.
    """
    top = _Parser(
        prog=f"python -m {package}", description=description,
        epilog="`COMMAND --help` shows the options and examples of a command.",
    )
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (settings, text) in commands.items():
        command = subparsers.add_parser(
            name, help=text, description=text[0].upper() + text[1:] + ".",
            epilog=_epilog(examples.get(name), settings),
            formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        )
        options.add_options(command, settings)
    return top


class _Parser(argparse.ArgumentParser):
    """A parser whose errors have a code, like all other errors of an app."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(
            exits.ExitCode.BAD_ARGUMENTS,
            f"{self.prog}: {exits.reported('argument-invalid', message)}\n",
        )


def _epilog(examples: str | None, settings: type[Any]) -> str:
    trains = "resume" in settings.__dataclass_fields__
    return "\n\n".join(filter(None, [examples, EXIT_CODES if trains else None]))
