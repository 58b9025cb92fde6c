"""Check `trimaran` commands in scripts and documents with the parser of this checkout."""

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
"""Arguments that need not exist: placeholders (`APP/RECIPE`), shell variables, SIF files."""


def lines(script: str) -> list[str]:
    """Return the arguments of each `trimaran` command in the text of a shell script."""
    return [line.strip() for line in COMMAND.findall(script.replace("\\\n", " "))]


def fault(line: str, made: Collection[str] = ()) -> str | None:
    """Return the error message for `trimaran LINE`, or None if the command is valid.

    The command is parsed but not executed. Names in it, such as recipes, must exist. Names in
    `made` need not exist, because earlier commands of the document define them.
    """
    words = shlex.split(line, comments=True)
    kept = words[: next((i for i, word in enumerate(words) if word[0] in "<>"), len(words))]
    # The parser itself refuses unknown architectures, so that a variable needs a value.
    kept = [
        "amd64" if before == "--arch" and "$" in word else word
        for before, word in zip(["", *kept], kept, strict=False)
    ]
    taken: list[str | None] = []

    def look_up(_: TyperCommand, context: typer.Context) -> None:
        taken.append(context.info_name)
        if not context.params.get("recipes"):  # a reader's own folder contains other names
            _names(context.info_name, {
                key: value for key, value in context.params.items()
                if not (isinstance(value, str) and (value in made or OPEN.fullmatch(value)))
            })

    with mock.patch.object(TyperCommand, "invoke", look_up):
        try:
            typer.main.get_command(cli.app).main(kept, "trimaran", standalone_mode=False)
        except Exception as error:  # an exception of click or of typer's copy of click
            return str(getattr(error, "message", error))
    return None if taken else "it does nothing"


def _names(command: str | None, given: Mapping[str, Any]) -> None:
    """Check that the recipes, images, data sets and so on that a command names exist.

    Raises:
        UsageError: one of them does not exist.
    """
    for key, known in (("engine", (AUTO, *ENGINES)), ("form", (docker.FORM,))):
        if command != "publish" and given.get(key) and given[key] not in known:
            raise unknown_name(key, given[key], known)
    if given.get("image"):
        definition.load(given["image"])
    if given.get("all_of"):
        library.definition(given["all_of"])
    if given.get("wanted_by"):
        library.load(given["wanted_by"])
    if command == "get" and given.get("name"):
        contracts.load(given["name"])
    if command == "show" and "name" in given:
        catalog.details(given["kind"], given["name"])
    if given.get("recipe") is not None:  # optional for `doctor`
        _of_recipe(library.load(given["recipe"]), given)


def _of_recipe(file: library.RecipeFile, given: Mapping[str, Any]) -> None:
    """Check that the app has each option in `--set`, and the recipe each data set in `--data`.

    Values that are shell variables or placeholders are not checked.

    Raises:
        UsageError: an option or a data set does not exist.
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
