"""Commands on what the checkout defines: list, show, schema."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated

import typer

from trimaran.cli.common import (
    Json,
    Recipes,
    SiteFile,
    app,
    complete_by_kind,
    emit,
    say,
    use_site,
)


class Kind(str, Enum):
    """What can be listed and shown."""

    APPS = "apps"
    IMAGES = "images"
    TARGETS = "targets"
    RECIPES = "recipes"
    DATA = "data"


@app.command("list")
def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)],
    as_json: Json = False,
    site: SiteFile = None,
    recipes: Recipes = None,
) -> None:
    """List apps, images, targets, recipes or data sets.

    Example: trimaran list recipes
    """
    from trimaran.survey import catalog

    use_site(site, recipes=recipes)
    rows = catalog.complete(kind.value) if as_json else catalog.table(kind.value)
    emit(rows, kind.value, as_json)


@app.command()
def show(
    kind: Annotated[Kind, typer.Argument(help="What to show.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(help="Its name.", autocompletion=complete_by_kind, show_default=False),
    ],
    site: SiteFile = None,
    recipes: Recipes = None,
) -> None:
    """Show one app, image, target, recipe or data set as JSON, checked and complete.

    Example: trimaran show recipes resnet-imagenet/cpu-quickstart
    """
    from trimaran.survey import catalog

    use_site(site, recipes=recipes)
    say(json.dumps(catalog.details(kind.value, name), indent=2))


@app.command()
def schema() -> None:
    """Write schema.json of recipes and of apps' cards, which editors check them by.

    Example: trimaran schema
    """
    from trimaran.survey import catalog

    catalog.write_schemas()
