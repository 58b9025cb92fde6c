"""Test the records of images: a damaged image is reported, renamed and built again."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

import sifs
from damage import spoil
from refusals import refused
from sifs import GOOD, TINY
from trimaran import paths
from trimaran.engines import store
from trimaran.engines.apptainer import Apptainer
from trimaran.files import sha256
from trimaran.inventory import catalog
from trimaran.provenance import inspection
from trimaran.reporting import Silent


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Apptainer:
    return sifs.engine(monkeypatch)


def build(engine: Apptainer, told: Silent | None = None) -> Path:
    built = engine.build(TINY, base=None, offline=True, reporter=told or Silent())
    return Path(built.reference)


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "link", "folder"])
def test_a_damaged_sif_is_named_everywhere_set_aside_and_built_anew(
    engine: Apptainer, how: str
) -> None:
    sif = build(engine)
    assert [one.state for one in catalog.local_images([TINY])["tiny"]] == ["built"]
    spoil(sif, how)
    assert [one.state for one in catalog.local_images([TINY])["tiny"]] == ["damaged"]
    assert engine.find(TINY) is None
    with refused("image-damaged", sif, sifs.DIGEST) as caught:
        inspection.examine(engine, TINY)
    assert str(caught.value.hint).startswith("trimaran build tiny --engine apptainer ")
    if how in ("cut", "flipped", "emptied"):
        assert f"sha256:{sha256(sif)}" in caught.value.message
    told = Silent()
    assert build(engine, told) == sif
    assert sif.read_bytes() == GOOD
    assert sifs.DIGEST in told.warnings[0]
    assert f"{sif.name}.damaged" in told.warnings[0]
    assert os.path.lexists(f"{sif}.damaged")
    assert [one.state for one in catalog.local_images([TINY])["tiny"]] == ["built"]


def test_a_changed_byte_with_the_old_date_and_size_is_listed(engine: Apptainer) -> None:
    sif = build(engine)
    about = sif.stat()
    spoil(sif, "flipped")
    os.utime(sif, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert [one.state for one in catalog.local_images([TINY])["tiny"]] == ["damaged"]


def test_a_listing_reads_no_image_that_was_not_touched(
    engine: Apptainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    sif = build(engine)

    def hashed(path: Path, *advance: Any) -> str:
        assert path != sif, "a listing read an image"
        return sha256(path, *advance)

    monkeypatch.setattr(store, "sha256", hashed)
    assert [one.state for one in catalog.local_images([TINY])["tiny"]] == ["built"]


def test_a_sif_that_is_gone_is_built_anew(engine: Apptainer) -> None:
    sif = build(engine)
    sif.unlink()
    assert catalog.local_images([TINY])["tiny"] == []
    told = Silent()
    assert build(engine, told) == sif
    assert f"{sif}: " in told.warnings[0]
    assert os.strerror(errno.ENOENT) in told.warnings[0]


@pytest.mark.parametrize("how", ["cut", "emptied", "link", "folder", "removed", "wrong"])
def test_a_damaged_record_is_named_and_the_sif_set_aside(engine: Apptainer, how: str) -> None:
    sif = build(engine)
    [record] = paths.cache("images").glob("*.apptainer.json")
    if how == "wrong":
        record.write_text(json.dumps(json.loads(record.read_text()) | {"reference": 5}))
    else:
        spoil(record, how)
    assert engine.find(TINY) is None
    told = Silent()
    assert build(engine, told) == sif
    assert engine.find(TINY) is not None
    said = "\n".join(told.warnings)
    assert f"{sif} " in said
    assert f" {sif.name}.damaged" in said
    if how != "removed":
        assert f"{record} " in said
        assert f" {record.name}.damaged" in said


def test_two_builds_of_one_image_make_it_once(engine: Apptainer) -> None:
    sif = build(engine)
    first = sif.stat().st_ino
    assert engine._build_one(TINY, None, None, True, Silent()).reference == str(sif)
    assert sif.stat().st_ino == first


def test_a_changed_record_is_not_used() -> None:
    """A record is ignored if the hash `inputs` in it was changed.

    The changed digit is not part of the file name, so the name still agrees with the hash.
    """
    inputs = "a" * 64
    record = store.Record(
        name="tiny", engine="apptainer", reference="/tiny.sif", digest=sifs.DIGEST,
        content="c" * 64, inputs=inputs, built="2026-01-01T00:00:00Z", base_name="debian",
        base_digest="sha256:1", size=3000,
    )
    store.save(record)
    assert [found for _, found in store.every()] == [record]
    record.path.write_text(record.path.read_text().replace(inputs, inputs[:-1] + "b"))
    assert list(store.every()) == []


def test_a_record_of_an_earlier_version_is_read_and_keeps_its_keys() -> None:
    old = {
        "name": "tiny", "engine": "apptainer", "reference": "/tiny.sif", "digest": sifs.DIGEST,
        "content": "c" * 64, "inputs": "a" * 64, "built": "2026-01-01T00:00:00Z",
        "base_name": "debian", "base_digest": "sha256:1", "size": 3000,
    }
    file = paths.cache("images", f"tiny-{12 * 'a'}.apptainer.json")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(old))
    [(path, record)] = store.every()
    store.save(record)
    assert path == file
    new = json.loads(file.read_text())
    assert new.pop(store.CHECKSUM)
    assert new == {**old, "origin": None, "architecture": "amd64"}
