"""Which images are here, told from their records: a listing must not read gigabytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trimaran import process
from trimaran.engines import store
from trimaran.engines.oci import STORAGE
from trimaran.engines.store import Record
from trimaran.images import definition
from trimaran.images.definition import Image


@dataclass(frozen=True)
class Here:
    """One image on this machine.

    Attributes:
        state: whether it was built here or pulled, or has changed since.
        current: whether it belongs to the definition as it is now; other ones serve only
            recipes that pin their digest.
        since: when it was built or pulled, in UTC.
        origin: where it was pulled from.
    """

    engine: str
    state: Literal["built", "pulled", "damaged"]
    current: bool
    reference: str
    digest: str
    size: int
    since: str
    origin: str | None


def here(wanted: Iterable[Image]) -> dict[str, list[Here]]:
    """Return what is here of each image by name, current ones first, then the newest.

    A SIF that was touched since it was recorded is hashed, an OCI image must be in Podman's
    storage. A damaged one is shown as such.
    """
    models = list(wanted)
    podman = {model.name: store.all_records(model, "podman") for model in models}
    stored = _podman_ids() if any(podman.values()) else set()
    found = {}
    for model in models:
        kept = [record for record in podman[model.name] if record.digest in stored]
        kept += [
            one for one in store.all_records(model, "apptainer")
            if os.path.lexists(one.reference)
        ]
        content = definition.content(model) if kept else ""
        rows = [_here(record, record.content == content) for record in kept]
        rows.sort(key=lambda row: row.since, reverse=True)
        rows.sort(key=lambda row: not row.current)
        found[model.name] = rows
    return found


def _here(record: Record, current: bool) -> Here:
    state: Literal["built", "pulled", "damaged"] = "pulled" if record.origin else "built"
    if record.engine == "apptainer" and store.damage(record, thorough=False):
        state = "damaged"
    return Here(
        record.engine, state, current, record.reference, record.digest, record.size,
        record.built, record.origin,
    )


def _podman_ids() -> set[str]:
    if shutil.which("podman") is None:
        return set()
    listed = process.run(
        ["podman", *STORAGE, "images", "--all", "--quiet", "--no-trunc"],
        env=store.engine_environment("/usr/bin/podman"),
    )
    return set(listed.stdout.split())
