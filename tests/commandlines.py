"""Lines of `trimaran` in scripts and documents, against the command line of this checkout."""

from __future__ import annotations

import functools
import re
import shlex
from typing import Any

import typer

from trimaran import cli

QUOTED = r"""'[^'\n]*'|"[^"\n]*\""""
COMMAND = re.compile(
    rf"(?:^|[(|;]|&&|\|\|)[ \t]*(?:\S*/)?trimaran ((?:{QUOTED}|[^|;)#\n'\"])*)", re.MULTILINE
)


def lines(script: str) -> list[str]:
    """Return what follows `trimaran` in each command of a shell script."""
    return [line.strip() for line in COMMAND.findall(script.replace("\\\n", " "))]


@functools.cache
def _root() -> Any:
    return typer.main.get_command(cli.app)


def fault(line: str) -> str | None:
    """Return what the command line has against `trimaran LINE`; None: nothing."""
    words, command = shlex.split(line, comments=True), _root()
    kept = words[: next((i for i, word in enumerate(words) if word[0] in "<>"), len(words))]
    context = command.make_context("trimaran", kept, resilient_parsing=True)
    try:
        while kept and hasattr(command, "resolve_command"):
            name, command, kept = command.resolve_command(context, kept)
            context = command.make_context(name, list(kept), parent=context)
    except Exception as error:  # click's own, or the copy of it that typer brings
        return str(getattr(error, "message", error))
    return None
