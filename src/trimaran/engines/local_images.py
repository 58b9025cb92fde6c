"""List the images on this machine by their records, without reading the images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trimaran.engines import selection, store
from trimaran.engines.build_steps import Container
from trimaran.engines.store import Record
from trimaran.images.definition import Image


@dataclass(frozen=True)
class LocalImage:
    """One image on this machine.

    Attributes:
        record: the record of the image.
        state: whether the image was built here or pulled, or has changed since.
        current: whether the image belongs to the current definition; recipes use an older image
            only by its digest.
    """

    record: Record
    state: Literal["built", "pulled", "damaged"]
    current: bool


def find(wanted: Iterable[Image]) -> dict[str, list[LocalImage]]:
    """Return the images on this machine by name: those of current definitions first, then by age.

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
        content = store.content_of(model) if kept[model.name] else ""
        rows = [
            _state_of(record, engines[record.engine], record.content == content)
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
