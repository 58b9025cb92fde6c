"""Test files: they are complete at every moment, no links are followed, and locks are held.

The error of a full disk names the file.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from refusals import refused
from trimaran import files

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


def test_a_full_disk_names_the_file_that_was_written(own_place: Path) -> None:
    """The error of a full disk names the file, although a write to a descriptor names none."""
    with (
        pytest.raises(OSError, match="No space left") as caught,
        files.named(own_place / "run.json"),
        Path("/dev/full").open("w") as full,
    ):
        full.write("x")
    assert caught.value.filename == str(own_place / "run.json")


def test_a_full_disk_is_told_with_its_place_and_what_is_free(own_place: Path) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    place = own_place / "not/there/yet"
    told = files.refusal(full, place)
    assert told.startswith("No space left on device (")
    mount = told.partition(" MB free on ")[2].rstrip(")")
    assert Path(mount).is_mount()
    assert place.is_relative_to(mount)
    assert files.refusal(OSError(errno.EACCES, "Permission denied"), place) == "Permission denied"


@pytest.fixture
def precious(own_place: Path) -> Path:
    file = own_place / "precious"
    file.write_text("precious")
    return file


@pytest.mark.parametrize("flags", [os.O_RDONLY, APPEND, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "dangling"])
def test_only_plain_files_are_opened(
    own_place: Path, precious: Path, flags: int, kind: str
) -> None:
    path = own_place / "name"
    if kind == "link":
        path.symlink_to(precious)
    elif kind == "dangling":
        path.symlink_to(own_place / "new")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    with refused("file-not-plain", path):
        files.open_plain(path, flags)
    assert precious.read_text() == "precious"
    assert not (own_place / "new").exists()


def test_a_second_name_is_read_and_not_written(own_place: Path, precious: Path) -> None:
    path = own_place / "name"
    path.hardlink_to(precious)
    assert files.read_plain(path) == b"precious"
    with refused("file-not-plain", path):
        files.open_plain(path, APPEND)


def test_a_link_costs_no_room_and_a_copy_stands_in_for_it(
    own_place: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    files.link_or_copy(precious, own_place / "link")
    monkeypatch.setattr(Path, "hardlink_to", refuse)
    files.link_or_copy(precious, own_place / "copy")
    assert (own_place / "link").samefile(precious)
    assert not (own_place / "copy").samefile(precious)
    assert (own_place / "copy").read_text() == "precious"


def test_a_lock_that_is_a_link_empties_nothing(own_place: Path, precious: Path) -> None:
    (own_place / ".lock").symlink_to(precious)
    with refused("file-not-plain", own_place / ".lock"), files.locked(own_place / ".lock", "taken"):
        pass
    assert precious.read_text() == "precious"
    lock = own_place / "no/.lock"
    with refused("file-unwritable", lock), files.locked(lock, ""):
        pass


def test_what_leads_out_of_a_folder_is_found(own_place: Path, precious: Path) -> None:
    folder = own_place / "folder"
    (folder / "in").mkdir(parents=True)
    (folder / "file").touch()
    (folder / "in/link").symlink_to("../file")
    assert files.leads_outside(folder) is None
    (folder / "in/out").symlink_to("../../precious")
    assert files.leads_outside(folder) == folder / "in/out"
    (folder / "in/out").unlink()
    os.mkfifo(folder / "pipe")
    assert files.leads_outside(folder) == folder / "pipe"
