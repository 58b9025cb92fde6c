"""Commands on the definitions of the checkout: `list`, `show` and `schema`."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from trimaran.cli.common import Json, app, command, complete_by_kind, emit, say

Kind = Literal["apps", "images", "targets", "recipes", "data"]
"""Kinds of definitions that can be listed and shown."""


@command(app, "list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List apps, images, targets, recipes or data sets.

    Example: trimaran list recipes
    """
    from trimaran.inventory import catalog

    rows = catalog.complete(kind) if as_json else catalog.table(kind)
    emit(rows, kind, as_json)


@command(app)
def show(
    kind: Annotated[Kind, typer.Argument(help="What to show.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(help="Its name.", autocompletion=complete_by_kind, show_default=False),
    ],
) -> None:
    """Show one app, image, target, recipe or data set as JSON.

    The file is checked, and values that it leaves out are filled in.

    Example: trimaran show recipes resnet-imagenet/cpu-quickstart
    """
    from trimaran.inventory import catalog

    say(json.dumps(catalog.details(kind, name), indent=2))


@app.command()
def schema() -> None:
    """Write the JSON schemas of recipes and apps, for editors.

    Example: trimaran schema
    """
    from trimaran.inventory import catalog

    catalog.write_schemas()
