"""Pack a bundle: one tar file with all that a run needs on a machine without network.

`archive` writes the tar file. This module collects the content.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from shards.description import DATASET
from trimaran import __version__, architectures, strict
from trimaran.architectures import MACHINES, Architecture
from trimaran.bundles import archive, runscript
from trimaran.bundles.archive import Member, text_member
from trimaran.data import cache, contracts, dataset_json
from trimaran.data.contracts import FileName
from trimaran.engines import BuiltImage, commands, store
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import RunError, UsageError
from trimaran.files import sha256
from trimaran.recipes import targets
from trimaran.reporting import Reporter
from trimaran.run import inputs, node_scripts, pipeline, run_directory
from trimaran.run.image import check_signature, prepare_image
from trimaran.run.record import (
    DataRecord,
    GitRecord,
    PublishedImage,
    RecipeRecord,
    SignatureRecord,
    as_list,
)
from trimaran.run.request import Request
from trimaran.strict import Sha256

MANIFEST = "bundle.json"
SCRIPT = "run.sh"
STEPS = 3


class BundledImage(PublishedImage, store.History, frozen=True):
    """The image in the bundle, with its signature, its origin and the size of its file.

    Attributes:
        name: name of the image, which determines the file name of the unpacked image.
        size: size of the SIF file in bytes.
    """

    name: FileName
    engine: Literal["apptainer"]
    architecture: Architecture = "amd64"
    size: int


class BundledData(strict.Model):
    """A data set of the run.

    Attributes:
        name: name of the data set, which is also the name of its contract (its description).
        folder: its folder in the bundle.
        sha256: hash of its `dataset.json`.
        included: whether the bundle contains its shards, besides `dataset.json`.
    """

    name: str
    folder: Annotated[str, Field(pattern=r"^data(/[a-z0-9-]+)?$")] = "data"
    sha256: Sha256
    included: bool


class Manifest(strict.Model):
    """The content of `bundle.json`, which records the origin of all parts of the bundle."""

    schema_: Literal[1] = Field(default=1, alias="schema")
    folder: FileName
    created: str
    trimaran: str
    apptainer: str
    recipe: RecipeRecord
    image: BundledImage
    data: Annotated[list[BundledData], BeforeValidator(as_list)]
    git: GitRecord


@dataclass(frozen=True)
class Packed:
    """A finished bundle: its path, the SHA-256 and size in bytes of the file, and its manifest."""

    path: Path
    sha256: str
    size: int
    manifest: Manifest


def pack(request: Request, output: Path, *, with_data: bool, reporter: Reporter) -> Packed:
    """Write all that the run `request` needs to the tar file `output`.

    If the image or data are missing on this machine, they are prepared first. Without `with_data`,
    the bundle has only the `dataset.json` of each data set.

    Raises:
        UsageError: `output` exists, its folder does not exist, or the recipe cannot be bundled.
        BuildError: the image cannot be built or pulled.
        RunError: the data cannot be prepared, or the disk space is too small.
    """
    archive.check_new(output)
    folder, engine, recipe = _folder_name(request.recipe.name), _engine(request), request.recipe
    with reporter.step(1, STEPS, inputs.title(recipe)):
        data = inputs.prepare(recipe, request.folders, offline=request.offline, reporter=reporter)
    with reporter.step(2, STEPS, f"image: {request.image.name}"):
        built = prepare_image(request, reporter)
        signature = check_signature(request, built)
    with reporter.step(3, STEPS, f"bundle: {output}"):
        manifest = Manifest(
            folder=folder,
            created=commands.created(),
            trimaran=__version__,
            apptainer=engine.version(),
            recipe=run_directory.recipe_record(recipe, request.changes),
            image=_image(request, built, signature),
            data=[
                BundledData(
                    name=one.name, folder="data" + inputs.below(recipe.recipe, one.name),
                    sha256=one.sha256, included=with_data,
                )
                for one in data
            ],
            git=run_directory.git_state(recipe.path.parent),
        )
        members = _members(request, manifest, built, data)
        digest = archive.write(output, folder, members, reporter)
    return Packed(output, digest, output.stat().st_size, manifest)


def _engine(request: Request) -> Apptainer:
    engine = request.engine
    if not isinstance(engine, Apptainer):  # run.sh calls Apptainer
        raise UsageError(f"a bundle contains a SIF, which the engine {engine.name} does not make",
                         code="engine-unsuitable", hint="use --engine apptainer")
    if request.recipe.recipe.initial is not None:
        raise UsageError(
            f"{request.recipe.name} starts from a checkpoint, which a bundle does not contain",
            code="bundle-unsupported",
            hint="bundle the recipe of the first stage, or use `trimaran run … --initial FILE`",
        )
    pipeline.check(request)
    for name, place in request.folders.items():
        if cache.is_image(place):
            raise UsageError(f"--data {name}={place}: a bundle needs a folder, and this is a file",
                             code="bundle-unsupported", hint="give the folder of the packed data")
    return engine


def _members(
    request: Request, manifest: Manifest, built: BuiltImage, data: Sequence[DataRecord]
) -> list[Member]:
    """Return the members in order: the text files first, and the large files last."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    now = int(epoch or time.time())

    def text(name: str, content: str, mode: int = 0o644) -> Member:
        return text_member(name, content, now, mode)

    def file(name: str, path: Path, digest: str) -> Member:
        facts = path.stat()
        return Member(name, path, facts.st_size, digest, now if epoch else int(facts.st_mtime))

    def copied(name: str, path: Path) -> Member:
        return text(name, path.read_text(encoding="utf-8"))

    target = request.recipe.recipe.target
    contents = runscript.Contents(
        request.recipe, request.changes, built, manifest.image.signature,
        {one.name: one.sha256 for one in data}, any(one.included for one in manifest.data),
        manifest.git,
    )
    readme = node_scripts.fill("trimaran.bundles", "bundle-readme.txt.j2", {
        "manifest": manifest, "recipe": request.recipe.recipe, "target": targets.load(target),
        "contracts": [contracts.load(one.name) for one in data],
        "getting": contents.getting, "included": contents.included,
        "machine": MACHINES[manifest.image.architecture],
    })
    below = {one.name: inputs.below(request.recipe.recipe, one.name).lstrip("/") for one in data}
    files = {
        Path(below[one.name], name).as_posix(): (Path(one.path, name), digest)
        for one in data for name, digest in _packed_files(Path(one.path)).items()
    }
    sums = "".join(f"{digest}  {name}\n" for name, (_, digest) in files.items())
    return [
        text("README.txt", readme),
        text(MANIFEST, manifest.model_dump_json(indent=2, by_alias=True) + "\n"),
        text(SCRIPT, runscript.render(contents), 0o755),
        copied(run_directory.RECIPE, request.recipe.path),
        copied(run_directory.CARD, request.recipe.card.path),
        copied("target.yaml", targets.file_of(target)),
        *(
            copied(f"contract{below[one.name] and '-'}{below[one.name]}.yaml",
                   contracts.file_of(one.name))
            for one in data
        ),
        text(runscript.DATA_SUMS, sums),
        *(
            file(f"data/{name}", path, digest)
            for name, (path, digest) in files.items()
            if contents.included or path.name == DATASET
        ),
        file(runscript.IMAGE, Path(built.reference), str(built.digest).removeprefix("sha256:")),
    ]


def _packed_files(place: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of the packed data set, `dataset.json` first."""
    return {
        DATASET: sha256(place / DATASET),
        **dataset_json.read(place).hashes(),
    }


def _image(
    request: Request, built: BuiltImage, signature: SignatureRecord | None
) -> BundledImage:
    record = store.record_of(Path(built.reference))
    if record is None:
        raise RunError(f"{built.reference} has no record in the cache", code="image-damaged",
                       hint=f"trimaran build {built.name}"
                       f"{architectures.option(request.image.architecture)}")
    known = {**asdict(record), "signature": signature}
    return BundledImage(**{key: known[key] for key in BundledImage.model_fields})


def _folder_name(recipe: str) -> str:
    if re.fullmatch(r"[a-z0-9-]+/[A-Za-z0-9][A-Za-z0-9._-]*(@[0-9]+)?", recipe) is None:
        raise UsageError(f"a bundle cannot be named after the recipe {recipe!r}",
                         code="bundle-unsupported", hint="rename the recipe")
    return recipe.replace("/", "-").replace("@", "-")
