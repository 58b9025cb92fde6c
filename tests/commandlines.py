"""Lines of `trimaran` in scripts and documents, against the command line of this checkout."""

from __future__ import annotations

import re
import shlex
from unittest import mock

import typer
from typer.core import TyperCommand

from trimaran import cli

QUOTED = r"""'[^'\n]*'|"[^"\n]*\""""
COMMAND = re.compile(
    rf"(?:^|[(|;]|&&|\|\|)[ \t]*(?:\S*/)?trimaran ((?:{QUOTED}|[^|;)#\n'\"])*)", re.MULTILINE
)


def lines(script: str) -> list[str]:
    """Return what follows `trimaran` in each command of a shell script."""
    return [line.strip() for line in COMMAND.findall(script.replace("\\\n", " "))]


def fault(line: str) -> str | None:
    """Return what the command line has against `trimaran LINE`; None: nothing.

    All of it is tried but what the command then does.
    """
    words = shlex.split(line, comments=True)
    kept = words[: next((i for i, word in enumerate(words) if word[0] in "<>"), len(words))]
    taken: list[str | None] = []
    with mock.patch.object(TyperCommand, "invoke", lambda _, own: taken.append(own.info_name)):
        try:
            typer.main.get_command(cli.app).main(kept, "trimaran", standalone_mode=False)
        except Exception as error:  # click's own, or the copy of it that typer brings
            return str(getattr(error, "message", error))
    return None if taken else "it does nothing"
