"""Verify and unpack a bundle, and move its image and data into the cache."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from pydantic import ValidationError

from shards.description import DATASET
from trimaran import paths
from trimaran.bundles import archive
from trimaran.bundles.archive import Archive
from trimaran.bundles.pack import MANIFEST, Manifest
from trimaran.bundles.runscript import IMAGE
from trimaran.data import cache, contracts, dataset_json
from trimaran.engines import store
from trimaran.errors import RunError, UsageError
from trimaran.files import check_space, link_or_copy, writing
from trimaran.images import content_hash, definition
from trimaran.parsing import Malformed, parse_json
from trimaran.reporting import Reporter
from trimaran.run import run_directory


def verify(file: Path, reporter: Reporter) -> Manifest:
    """Check every member of the bundle `file` without writing any file.

    Raises:
        UsageError: `file` cannot be read.
        RunError: `file` is not a bundle, is damaged, or contains a file that is not listed.
    """
    with archive.opened(file) as bundle:
        bundle.check(None, reporter)
        return _manifest(file, bundle)


def extract(file: Path, to: Path | None, reporter: Reporter) -> tuple[Path, Manifest]:
    """Unpack the bundle `file` into the folder `to`, which is created after everything is verified.

    Args:
        file: the bundle.
        to: a folder that does not exist or is empty. If it is None, the folder is created in the
            working directory, with the name of the folder in the bundle.
        reporter: shows progress.

    Returns:
        The folder and the content of `bundle.json`.

    Raises:
        UsageError: `file` cannot be read, or `to` cannot be created.
        RunError: `file` is not a bundle or is damaged, or the disk space is too small.
    """
    with archive.opened(file) as bundle:
        target = (to or Path(bundle.folder)).absolute()
        empty = target.is_dir() and not any(target.iterdir())
        if target.is_symlink() or (target.exists() and not empty):
            raise UsageError(
                f"{target} exists and is not empty: nothing is overwritten", code="file-exists",
                hint="choose another folder: --to DIR",
            )
        if not target.parent.is_dir():
            raise UsageError(f"{target}: the folder {target.parent} does not exist",
                             code="file-missing", hint="make the folder first")
        check_space(target.parent, file.stat().st_size, "the unpacked bundle", RunError)
        with (
            writing(f"write {target}", target),
            tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as place,
        ):
            whole = Path(place) / "whole"
            whole.mkdir()
            bundle.check(whole, reporter)
            manifest = _manifest(file, bundle)
            whole.rename(target)
    return target, manifest


def take_in(folder: Path, manifest: Manifest, reporter: Reporter) -> None:
    """Put the image and data of the unpacked bundle `folder` into the cache of `trimaran run`.

    The files are hard links, or copies if the cache is on another file system.

    Raises:
        RunError: the cache cannot be written.
    """
    image = manifest.image
    sif = paths.cache("images", f"{image.name}-{image.inputs[:12]}.sif")
    with writing("write into the cache", paths.cache()):
        here = store.record_of(sif)
        fault = store.damage(here) if here else None
        if here and fault:
            store.move_damaged(here, fault, reporter)
        if here is None or fault:
            _link(folder / IMAGE, sif)
            known = image.model_dump(exclude={"signature"})
            store.save(store.Record(reference=str(sif), **known))
        reporter.note(f"  {sif}")
        for one in manifest.data:
            if one.included:
                _take_in_data(folder / one.folder, one.name, reporter)
    if image.name not in definition.names() or (
        image.content not in content_hash.contents(definition.load(image.name)).values()
    ):
        reporter.warn(
            f"this checkout defines {image.name} differently, so `trimaran run` does not take "
            "the bundle's image: use run.sh, or the checkout's revision in bundle.json"
        )


def _take_in_data(place: Path, name: str, reporter: Reporter) -> None:
    target = cache.folder(contracts.load(name), dataset_json.read(place).format)
    if not target.exists():
        part = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            for path in sorted(place.rglob("*")):
                if path.is_file():  # a shard of LMDB is a folder
                    _link(path, part / path.relative_to(place))
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    reporter.note(f"  {target}")


def _link(source: Path, target: Path) -> None:
    """Link or copy the file `source` to `target`, which is replaced atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        link_or_copy(source, part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _manifest(file: Path, bundle: Archive) -> Manifest:
    try:
        manifest = Manifest.model_validate(parse_json(bundle.text(MANIFEST)))
    except ValidationError as error:
        raise RunError(
            f"{file}: {MANIFEST}: {error.errors()[0]['msg']}", code="bundle-invalid",
            hint="another version of Trimaran may have written it",
        ) from error
    except Malformed as error:
        raise RunError(f"{file}: {MANIFEST}: {error}", code="bundle-damaged",
                       hint="copy the bundle again") from error
    faults = [
        f"{name} has the SHA-256 {bundle.sums.get(name, 'of no file')}, expected {listed}"
        for name, listed in _listed(file, bundle, manifest).items()
        if bundle.sums.get(name) != listed
    ]
    if faults:
        raise RunError(
            "\n".join([f"{file}: its files disagree", *faults]), code="bundle-damaged",
            hint="do not use it; get the bundle again from where it was packed",
        )
    return manifest


def _listed(file: Path, bundle: Archive, manifest: Manifest) -> dict[str, str]:
    """Return the SHA-256 of each file that `bundle.json` or `dataset.json` lists."""
    listed = {
        IMAGE: manifest.image.digest.removeprefix("sha256:"),
        run_directory.RECIPE: manifest.recipe.sha256,
    }
    if manifest.recipe.card_sha256 is not None:
        listed[run_directory.CARD] = manifest.recipe.card_sha256
    for one in manifest.data:
        dataset = f"{one.folder}/{DATASET}"
        listed[dataset] = one.sha256
        if one.included and dataset in bundle.sums:
            for name, digest in _shards(file, bundle, one.folder).items():
                listed[f"{one.folder}/{name}"] = digest
    return listed


def _shards(file: Path, bundle: Archive, folder: str) -> dict[str, str]:
    """Return the SHA-256 of each file that is listed in `FOLDER/dataset.json` in the bundle."""
    with tempfile.TemporaryDirectory() as place:
        text = bundle.text(f"{folder}/{DATASET}")
        (Path(place) / DATASET).write_bytes(text)
        try:
            return dataset_json.read(Path(place)).hashes()
        except UsageError as error:
            raise RunError(
                error.message.replace(place, f"{file}: {folder}"), code="bundle-damaged",
                hint=error.hint
            ) from error
