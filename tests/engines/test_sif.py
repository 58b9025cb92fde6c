"""Test the header of a SIF file (equal content gives equal bytes) and its mode."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from refusals import refused
from trimaran.engines import apptainer


def write(path: Path, *, date: int, identifier: bytes, size: int = 2 * 585) -> Path:
    """Write a SIF with a used descriptor, an unused descriptor, and some data."""
    header = b"#!/usr/bin/env run-singularity\n\0" + b"SIF_MAGIC\0" + b"01\0" + b"02\0" + identifier
    header += struct.pack("<qqqqqqqq", date, date, 1, 2, 4096, size, 8192, 4)
    used = struct.pack("<IBIIIqqqqqqq", 0x4004, 1, 1, 1, 0, 8192, 4, 4, date, date, 0, 0)
    path.write_bytes(
        header.ljust(4096, b"\0") + used.ljust(585, b"\0") + bytes(585) + b"\0" * 2926 + b"data"
    )
    return path


def test_two_files_of_equal_content_become_equal(tmp_path: Path) -> None:
    first = write(tmp_path / "1.sif", date=1_700_000_001, identifier=b"0123456789abcdef")
    second = write(tmp_path / "2.sif", date=1_800_000_002, identifier=b"fedcba9876543210")
    assert first.read_bytes() != second.read_bytes()
    for path in (first, second):
        apptainer.freeze(path, 1_600_000_000)
    assert first.read_bytes() == second.read_bytes()
    expected = write(tmp_path / "3.sif", date=1_600_000_000, identifier=bytes(16))
    assert first.read_bytes() == expected.read_bytes()


def test_what_is_no_sif_or_of_another_layout_is_left_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"x" * 9000)
    newer = write(tmp_path / "newer.sif", date=1, identifier=bytes(16), size=2 * 600)
    for path in (other, newer):
        before = path.read_bytes()
        with refused("image-invalid"):
            apptainer.freeze(path, 0)
        assert path.read_bytes() == before


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o755), (0o600, 0o700), (0o640, 0o750)])
def test_who_may_read_it_may_run_it(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "image.sif"
    path.touch(mode=before)
    path.chmod(before)
    apptainer.make_executable(path)
    assert path.stat().st_mode & 0o777 == after
