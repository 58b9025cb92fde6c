"""The files of a run, a data set and a bundle have the permissions that the umask allows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
import yaml

import datasets
import photos
from packings import pack
from samples import GOOD
from shards.kinds import ImageFormat
from trimaran import paths
from trimaran.bundles import archive
from trimaran.bundles.archive import text_member
from trimaran.data import cache
from trimaran.data.packing.idx import Images
from trimaran.files import write_atomic
from trimaran.launch.specification import LaunchSpec, Node
from trimaran.recipes import library
from trimaran.reporting import Silent
from trimaran.run import run_directory
from trimaran.run.record import DataRecord, ImageRecord


@pytest.fixture(params=[0o077, 0o022], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def other_rights(place: Path, umask: int) -> list[str]:
    """Return the paths in `place` whose permissions differ from those of new files and folders."""
    found = []
    for path in (place, *place.rglob("*")):
        rights = path.stat().st_mode & 0o777
        usual = {0o777 & ~umask} if path.is_dir() else {0o666 & ~umask, 0o777 & ~umask}
        if rights not in usual:
            found.append(f"{path.relative_to(place)} {rights:o}")
    return found


def test_a_replaced_file_has_them_and_no_more(tmp_path: Path, umask: int) -> None:
    file = tmp_path / "file"
    for content in ("old", "new"):
        write_atomic(file, content)
        assert file.stat().st_mode & 0o777 == 0o666 & ~umask


def test_a_data_set_in_the_cache(tmp_path: Path, umask: int) -> None:
    contract = Images.model_validate(datasets.document(tmp_path / "world"))
    cache.get(contract, offline=True, reporter=Silent())
    assert other_rights(paths.cache(), umask) == []


@pytest.mark.parametrize("kind", get_args(ImageFormat))
def test_packed_data(tmp_path: Path, umask: int, kind: str) -> None:
    out = tmp_path / "out"
    pack(photos.folder(tmp_path / "photos"), out, format=kind)
    assert other_rights(out, umask) == []


def test_a_bundle_and_what_is_unpacked_of_it(tmp_path: Path, umask: int) -> None:
    file, out = tmp_path / "small.tar", tmp_path / "out"
    members = [text_member("text", "text\n", 7), text_member("run.sh", "#!/bin/sh\n", 7, 0o755)]
    archive.write(file, "small", members, Silent())
    assert file.stat().st_mode & 0o777 == 0o666 & ~umask
    out.mkdir()
    with archive.opened(file) as found:
        found.check(out, Silent())
    assert other_rights(out, umask) == []
    assert (out / "run.sh").stat().st_mode & 0o777 == 0o777 & ~umask


def test_a_run_directory(checkout: Path, tmp_path: Path, umask: int) -> None:
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(GOOD))
    directory = tmp_path / "run"
    image = ImageRecord(
        name="image", engine="host", reference="/venv", digest=None, inputs="ab" * 32,
        publishable=False,
    )
    used = DataRecord(name="fashion-mnist", path="/data", sha256="cd" * 32)
    recipe = library.load("resnet-imagenet/cpu-smoke")
    record = run_directory.start(directory, recipe, {}, image, [used],
                         LaunchSpec(image.image, Node("app", "/venv")))
    with run_directory.alone(directory):
        run_directory.finish(directory, record, "completed", 0)
    assert other_rights(directory, umask) == []
