"""Lines of `trimaran` in scripts and documents, against the command line of this checkout."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping
from typing import Any
from unittest import mock

import typer
from typer.core import TyperCommand

from trimaran import cli
from trimaran.cluster import docker
from trimaran.data import contracts
from trimaran.engines.selection import AUTO, ENGINES
from trimaran.errors import UsageError, unknown_name
from trimaran.images import definition
from trimaran.inventory import catalog
from trimaran.recipes import cards, library
from trimaran.recipes.library import parse_changes
from trimaran.run import inputs

QUOTED = r"""'[^'\n]*'|"[^"\n]*\""""
COMMAND = re.compile(
    rf"(?:^|[(|;]|&&|\|\|)[ \t]*(?:\S*/)?trimaran ((?:{QUOTED}|[^|;)#\n'\"])*)", re.MULTILINE
)
OPEN = re.compile(r"[A-Z][A-Z-]*(?:/[A-Z-]+)?|.*\$.*|.*\.sif")
"""What names nothing here: a word for what the reader has (`APP/RECIPE`), a variable, a file."""


def lines(script: str) -> list[str]:
    """Return what follows `trimaran` in each command of a shell script."""
    return [line.strip() for line in COMMAND.findall(script.replace("\\\n", " "))]


def fault(line: str, made: Collection[str] = ()) -> str | None:
    """Return what the command line has against `trimaran LINE`; None: nothing.

    All of it is tried but what the command then does: the names of what is defined, too, but for
    those in `made`, which are there only when commands before it were executed.
    """
    words = shlex.split(line, comments=True)
    kept = words[: next((i for i, word in enumerate(words) if word[0] in "<>"), len(words))]
    taken: list[str | None] = []

    def look_up(_: TyperCommand, context: typer.Context) -> None:
        taken.append(context.info_name)
        if not context.params.get("recipes"):  # a folder of the reader's has names of its own
            _names(context.info_name, {
                key: value for key, value in context.params.items()
                if not (isinstance(value, str) and (value in made or OPEN.fullmatch(value)))
            })

    with mock.patch.object(TyperCommand, "invoke", look_up):
        try:
            typer.main.get_command(cli.app).main(kept, "trimaran", standalone_mode=False)
        except Exception as error:  # click's own, or the copy of it that typer brings
            return str(getattr(error, "message", error))
    return None if taken else "it does nothing"


def _names(command: str | None, given: Mapping[str, Any]) -> None:
    """Raise UsageError for a name, among what a command was given, that nothing here has."""
    for key, known in (("engine", (AUTO, *ENGINES)), ("form", (docker.FORM,))):
        if given.get(key) and given[key] not in known:
            raise unknown_name(key, given[key], known)
    if given.get("image"):
        definition.load(given["image"])
    if given.get("wanted_by"):
        library.load(given["wanted_by"])
    if command == "get" and given.get("name"):
        contracts.load(given["name"])
    if command == "show" and "name" in given:
        catalog.details(given["kind"], given["name"])
    if "recipe" in given:
        _of_recipe(library.load(given["recipe"]), given)


def _of_recipe(file: library.RecipeFile, given: Mapping[str, Any]) -> None:
    """Raise UsageError for an argument that its app has not, or a data set that it does not read.

    The value that a variable of the shell has is not known.
    """
    inputs.given(file, given.get("data") or [])
    recipe = file.recipe
    known = cards.verbs(recipe.app)[recipe.verb].options
    changes = {
        key: value for key, value in parse_changes(given.get("settings") or []).items()
        if not (key in known and OPEN.fullmatch(str(value)))
    }
    for key, wrong in cards.argument_faults(recipe.app, recipe.verb, changes).items():
        raise UsageError(f"--set {key}: {wrong}")
