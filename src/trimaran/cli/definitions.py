"""Commands on what the checkout defines: list, show, schema."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated

import typer

from trimaran.cli.common import Json, app, command, complete_by_kind, emit, say


class Kind(str, Enum):
    """What can be listed and shown."""

    APPS = "apps"
    IMAGES = "images"
    TARGETS = "targets"
    RECIPES = "recipes"
    DATA = "data"


@command(app, "list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)],
    as_json: Json = False,
) -> None:
    """List apps, images, targets, recipes or data sets.

    Example: trimaran list recipes
    """
    from trimaran.survey import catalog

    rows = catalog.complete(kind.value) if as_json else catalog.table(kind.value)
    emit(rows, kind.value, as_json)


@command(app)
def show(
    kind: Annotated[Kind, typer.Argument(help="What to show.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(help="Its name.", autocompletion=complete_by_kind, show_default=False),
    ],
) -> None:
    """Show one app, image, target, recipe or data set as JSON, checked and complete.

    Example: trimaran show recipes resnet-imagenet/cpu-quickstart
    """
    from trimaran.survey import catalog

    say(json.dumps(catalog.details(kind.value, name), indent=2))


@app.command()
def schema() -> None:
    """Write schema.json of recipes and of apps' cards, which editors check them by.

    Example: trimaran schema
    """
    from trimaran.survey import catalog

    catalog.write_schemas()
