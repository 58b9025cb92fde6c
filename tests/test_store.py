"""Built images and their records: what has changed since is named, set aside, and made anew."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from trimaran import images, inspection, inventory, paths, render, wheelhouse
from trimaran.base import Base
from trimaran.engines import BuiltImage, store
from trimaran.engines import here as listing
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import BuildError
from trimaran.files import sha256
from trimaran.reporting import Silent

TINY = images.read(Path(__file__).with_name("images") / "tiny" / "image.yaml")
GOOD = b"SIF" * 1000


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Apptainer:
    """Makes SIF files without Apptainer."""
    @contextmanager
    def made(*words: Any) -> Any:
        folder = paths.cache("images", "part-0")
        folder.mkdir(parents=True)
        (folder / "image.sif").write_bytes(GOOD)
        yield BuiltImage("tiny", "apptainer", str(folder / "image.sif"),
                         f"sha256:{hashlib.sha256(GOOD).hexdigest()}", "ab" * 32, len(GOOD))
        folder.rmdir()

    engine = Apptainer("/opt/apptainer/bin/apptainer")
    base = Base("localimage", "/base.sif", "debian", "sha256:1")
    monkeypatch.setattr("trimaran.engines.apptainer.root_lacks_capabilities", lambda: False)
    monkeypatch.setattr(render, "check", lambda image: None)
    monkeypatch.setattr(wheelhouse, "fetch", lambda *words, **more: [])
    monkeypatch.setattr(engine, "_base", lambda *words: base)
    monkeypatch.setattr(engine, "_made", made)
    monkeypatch.setattr(engine, "test", lambda *words: None)
    monkeypatch.setattr(inventory, "record", lambda *words: None)
    return engine


def build(engine: Apptainer, told: Silent | None = None) -> Path:
    built = engine.build(TINY, base=None, offline=True, reporter=told or Silent())
    return Path(built.reference)


def spoil(file: Path, how: str) -> None:
    """Damage `file` in one of the ways of the standing suite."""
    content = file.read_bytes()
    if how == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        file.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    elif how == "emptied":
        file.write_bytes(b"")
    else:
        file.unlink()
        if how == "link":
            file.symlink_to("nowhere")
        elif how == "folder":
            file.mkdir()


@pytest.mark.parametrize("how", ["cut", "flipped", "emptied", "link", "folder"])
def test_a_damaged_sif_is_named_everywhere_set_aside_and_built_anew(
    engine: Apptainer, how: str
) -> None:
    sif = build(engine)
    assert [one.state for one in listing.here([TINY])["tiny"]] == ["built"]
    spoil(sif, how)
    assert [one.state for one in listing.here([TINY])["tiny"]] == ["damaged"]
    assert engine.find(TINY) is None
    expected = f"expected sha256:{hashlib.sha256(GOOD).hexdigest()}, found"
    with pytest.raises(BuildError) as refused:
        inspection.examine(engine, TINY)
    assert f"{sif}" in refused.value.message
    assert expected in refused.value.message
    assert refused.value.hint == (
        "trimaran build tiny --engine apptainer sets it aside and makes it anew"
    )
    if how in ("cut", "flipped", "emptied"):
        assert f"found sha256:{sha256(sif)}" in refused.value.message
    told = Silent()
    assert build(engine, told) == sif
    assert sif.read_bytes() == GOOD
    assert expected in told.warnings[0]
    assert f"set aside as {sif.name}.damaged" in told.warnings[0]
    assert os.path.lexists(f"{sif}.damaged")
    assert [one.state for one in listing.here([TINY])["tiny"]] == ["built"]


def test_a_changed_byte_with_the_old_date_and_size_is_listed(engine: Apptainer) -> None:
    sif = build(engine)
    about = sif.stat()
    spoil(sif, "flipped")
    os.utime(sif, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert [one.state for one in listing.here([TINY])["tiny"]] == ["damaged"]


def test_a_listing_reads_no_image_that_was_not_touched(
    engine: Apptainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(engine)
    monkeypatch.setattr(store, "sha256", lambda path: pytest.fail("a listing read an image"))
    assert [one.state for one in listing.here([TINY])["tiny"]] == ["built"]


def test_a_sif_that_is_gone_is_built_anew(engine: Apptainer) -> None:
    sif = build(engine)
    sif.unlink()
    assert listing.here([TINY])["tiny"] == []
    told = Silent()
    assert build(engine, told) == sif
    assert "found none: No such file" in told.warnings[0]


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
    assert f"{sif} has no record; set aside as {sif.name}.damaged" in said
    if how != "removed":
        assert f"{record} is damaged; set aside as {record.name}.damaged" in said


def test_two_builds_of_one_image_make_it_once(engine: Apptainer) -> None:
    sif = build(engine)
    first = sif.stat().st_ino
    assert engine._build_one(TINY, None, None, True, Silent()).reference == str(sif)
    assert sif.stat().st_ino == first
