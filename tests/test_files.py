from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from trimaran import files


def test_a_full_disk_names_the_file_that_was_written(own_place: Path) -> None:
    """The system names none when a descriptor is written to."""
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
