"""What the first stage of an image has compiled, kept outside the container for the next build.

The cache has one folder of objects for each combination of a stage's inputs: rendered definition,
scripts, sources, locks and base image. An object in it is identified by the command that compiled
it. `containers/build/kept.sh` writes and reads the objects: a name contains the SHA-256 of the
content, and a file gets its name when it is complete. So a build that was stopped, even by
`kill -9`, goes on where it stopped, and no half-written object is used. The folder is the same for
Apptainer and Podman. Link steps and GPU code are compiled in each build.

The stage also reports here why it refused the base image (`Report`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from trimaran import paths, strict
from trimaran.files import read_plain
from trimaran.images import content_hash, definition, render
from trimaran.images.definition import Image

MOST = 50
"""Maximum number of faults in a report."""


class Report(strict.Model):
    """Why the first stage of an image of AMD failed.

    Attributes:
        stage: `base`: the image cannot be built on this base image; `horovod`: the image can only
            be built without Horovod.
        faults: all faults, one sentence each.
    """

    stage: Literal["base", "horovod"]
    faults: tuple[str, ...] = Field(min_length=1, max_length=MOST)


def folder(image: Image, base_digest: str) -> Path:
    """Return the cache folder of the objects that the first build stage of `image` compiles.

    `base_digest` is the digest of the base image on which the stage compiles them.
    """
    base = base_digest.removeprefix("sha256:")[:12]
    return paths.cache("compiled", f"{image.name}-{key(image)[:12]}-{base}")


def is_current(place: Path, images: Iterable[Image]) -> bool:
    """Return whether a build of one of the `images` could use the compiled objects in `place`.

    The name of the folder `place` must contain the hash of the current inputs of an image's
    first build stage, for any architecture of the image. The base image may be any.
    """
    return any(
        place.name.startswith(f"{image.name}-{key(definition.on(image, architecture))[:12]}-")
        for image in images for architecture in image.architectures
    )


def key(image: Image) -> str:
    """Return a SHA-256 over all inputs of an image's first build stage.

    The inputs do not include the content of the base image.
    """
    stage, _, _ = render.text(image, "Dockerfile").partition(" AS final")
    parts = {
        "stage": stage, "architecture": image.architecture, **content_hash.inputs_of(image),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def prepare(place: Path) -> None:
    """Create the folder `place`, and remove the report and the unfinished files of a killed build.

    The caller holds the lock of the folder.
    """
    place.mkdir(parents=True, exist_ok=True)
    for left in (place / "report.json", *place.glob("part-*")):
        left.unlink(missing_ok=True)


def report(place: Path) -> Report | None:
    """Return the report of the last build that used `place`, a folder of compiled objects.

    Return None if the folder has no valid report.
    """
    try:
        return Report.model_validate_json(read_plain(place / "report.json"))
    except (OSError, ValidationError):
        return None
