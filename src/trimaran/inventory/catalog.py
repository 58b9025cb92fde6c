"""List and show the apps, images, targets, recipes and data sets that the checkout defines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from trimaran import paths, strict
from trimaran.data import cache, contracts
from trimaran.engines import selection, store
from trimaran.engines.build_steps import Container
from trimaran.engines.store import Record
from trimaran.files import write_atomic
from trimaran.images import content_hash, definition
from trimaran.images.definition import Image
from trimaran.provenance import digests
from trimaran.recipes import cards, library, targets
from trimaran.recipes.cards import Card
from trimaran.recipes.recipe import Recipe

Row = dict[str, Any]

IN_FRAMEWORKS = {"architectures", "lacks"}
"""Keys of an image definition that an app image has from its framework image."""


def names(kind: str) -> list[str]:
    """Return the names of `kind` (apps, images, targets, recipes, data), sorted."""
    return {
        "apps": cards.names,
        "images": definition.names,
        "targets": targets.names,
        "recipes": library.names,
        "data": contracts.names,
    }[kind]()


def table(kind: str) -> list[Row]:
    """Return one row for each definition of `kind`, with the columns of the printed table."""
    if kind == "images":
        return [_image_row(row) for row in _images()]
    if kind == "recipes":  # the long name contains purpose and target
        return [_recipe_row(row) for row in _recipes()]
    if kind == "data":  # the column of formats would leave too little width for the title
        return [{key: value for key, value in row.items() if key != "formats"} for row in _data()]
    row = {"apps": _app_row, "targets": _target_row}[kind]
    return [row(name) for name in names(kind)]


def complete(kind: str) -> list[Row]:
    """Return one row for each definition of `kind`, with all columns, for JSON."""
    rows = {"images": _images, "recipes": _recipes, "data": _data}
    return rows[kind]() if kind in rows else table(kind)


def details(kind: str, name: str) -> Row:
    """Return the content of one definition as JSON data, with defaults filled in.

    Raises:
        UsageError: the name is unknown, or the file is invalid.
    """
    if kind == "recipes":
        recipe = library.load(name).recipe if "@" in name else library.definition(name)
        return recipe.model_dump(mode="json", by_alias=True)
    if kind == "images":
        image = definition.load(name)
        below = definition.chain(image)[0].model_dump(mode="json", include=IN_FRAMEWORKS)
        return image.model_dump(mode="json", by_alias=True) | below
    load: dict[str, Callable[[str], strict.Model]] = {
        "apps": lambda app: cards.load(app).card, "targets": targets.load, "data": contracts.load,
    }
    return load[kind](name).model_dump(mode="json", by_alias=True)


SCHEMAS: dict[str, type[strict.Model]] = {"recipes/schema.json": Recipe, "apps/schema.json": Card}
"""A dictionary that maps the path of each JSON schema in the checkout to its pydantic model."""


def schema_text(model: type[strict.Model]) -> str:
    """Return the text of the file with the JSON schema of `model`."""
    return json.dumps(model.model_json_schema(by_alias=True), indent=2) + "\n"


def write_schemas() -> None:
    """Write the files of `SCHEMAS`.

    Raises:
        UsageError: this is an installed package, not a checkout.
    """
    paths.refuse_installed(paths.repository())
    for name, model in SCHEMAS.items():
        write_atomic(paths.repository() / name, schema_text(model))


def _app_row(name: str) -> Row:
    card = cards.load(name).card
    return {"name": name, "framework": card.framework, "title": card.title}


def _images() -> list[Row]:
    """Return one row per image: definition, images on this machine, and published images."""
    models = definition.every()
    local = local_images(models) if paths.has_cache() else {model.name: [] for model in models}
    published = digests.known()
    return [
        {
            "name": model.name, "kind": model.kind, "tag": model.tag, "summary": model.summary,
            "architectures": list(definition.chain(model)[0].architectures),
            "here": [_local_row(one) for one in local[model.name]],
            "published": [
                one.model_dump(mode="json") for one in published if one.image == model.name
            ],
        }
        for model in models
    ]


def _local_row(found: LocalImage) -> Row:
    """Return the entry of `list images --json` for an image on this machine."""
    record = found.record
    return {
        "engine": record.engine, "state": found.state, "current": found.current,
        "reference": record.reference, "digest": record.digest, "size": record.size,
        "since": record.built, "origin": record.origin, "architecture": record.architecture,
    }


def _image_row(row: Row) -> Row:
    """Return the row of an image definition for the table that `cli` prints.

    The cells have one line for each image on this machine that a run can use; the column `for` has
    one line for each architecture, because the columns fill a terminal of 80 characters.
    """
    usable = [one for one in row["here"] if one["current"] or one["origin"]]
    states = [
        f"{one['state']} ({one['engine']}, {one['architecture']})"
        + ("" if one["current"] else ", for its digest only")
        for one in usable
    ]
    return {
        "name": row["name"], "for": "\n".join(row["architectures"]),
        "state": "\n".join(states) or "not here",
        "digest": "\n".join(one["digest"].removeprefix("sha256:")[:12] for one in usable),
        "size": "\n".join(f"{one['size'] / 1e6:,.0f} MB" for one in usable),
    }


def _target_row(name: str) -> Row:
    return {"name": name, "summary": targets.load(name).summary}


def _recipes() -> list[Row]:
    rows = [(name, library.definition(name)) for name in names("recipes")]
    return [
        {
            "name": name, "purpose": recipe.purpose, "target": recipe.target,
            "image": recipe.image.name, "summary": recipe.summary,
            "points": list(recipe.series.points) if recipe.series else [],
        }
        for name, recipe in rows
    ]


def _recipe_row(row: Row) -> Row:
    points = " ".join(f"@{number}" for number in row["points"])
    return {"name": row["name"], "summary": f"{row['summary']} {points}".rstrip()}


def _data() -> list[Row]:
    return [_data_row(name) for name in names("data")]


def _data_row(name: str) -> Row:
    contract = contracts.load(name)
    return {
        "name": name, "state": cache.state(contract) if paths.has_cache() else "absent",
        "formats": " ".join(cache.formats_here(contract) if paths.has_cache() else ()),
        "licence": contract.licence.id,
        "samples": " + ".join(
            "?" if split.samples is None else f"{split.samples:,}"
            for split in contract.splits.values()
        ),
        "title": contract.title,
    }


@dataclass(frozen=True)
class LocalImage:
    """One image on this machine.

    Attributes:
        record: the record of the image.
        state: whether the image was built on this machine, was pulled, or is damaged.
        current: whether the image belongs to the current definition; recipes use an older image
            only by its digest.
    """

    record: Record
    state: Literal["built", "pulled", "damaged"]
    current: bool


def local_images(wanted: Iterable[Image]) -> dict[str, list[LocalImage]]:
    """Return the images on this machine by name: images of current definitions first, then by age.

    Only a SIF whose `ctime` is newer than its record is hashed, to find out whether it is damaged.
    """
    models = list(wanted)
    engines = selection.containers()
    kept: dict[str, list[Record]] = {model.name: [] for model in models}
    for name, engine in engines.items():
        records = [record for model in models for record in store.all_records(model, name)]
        for record in engine.present(records):
            kept[record.name].append(record)
    found = {}
    for model in models:
        contents = content_hash.contents(model) if kept[model.name] else {}
        rows = [
            _state_of(record, engines[record.engine],
                      record.content == contents.get(record.architecture))
            for record in kept[model.name]
        ]
        rows.sort(key=lambda row: (row.current, row.record.built), reverse=True)
        found[model.name] = rows
    return found


def _state_of(record: Record, engine: type[Container], current: bool) -> LocalImage:
    state: Literal["built", "pulled", "damaged"] = "pulled" if record.origin else "built"
    if engine.fault(record, thorough=False):
        state = "damaged"
    return LocalImage(record, state, current)
