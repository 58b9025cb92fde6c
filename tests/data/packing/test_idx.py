"""The IDX reader accepts exactly the specified format; an error names the file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets import idx_bytes
from refusals import refused
from trimaran.data.packing import idx
from trimaran.errors import RunError

GOOD = idx_bytes((2, 2, 3), bytes(range(12)))


def test_array_is_read(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(GOOD)
    assert idx.read(path, dimensions=3) == idx.Array((2, 2, 3), bytes(range(12)))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "begins with nothing"),
        (b"\x1f\x8b\x08\x00" + GOOD, "begins with 1f8b0800"),
        (b"\0\0\x0d\x03" + GOOD[4:], "floats"),
        (b"\0\0\x07\x03" + GOOD[4:], "0x07"),
        (idx_bytes((2,), b"ab"), "1 dimensions, not 3"),
        (GOOD[:9], "(9 of 16 bytes)"),
        (GOOD[:-1], ": 27 bytes, by its header 28"),
        (GOOD + b"x", ": 29 bytes, by its header 28"),
    ],
)
def test_fault_names_file_and_what_is_wrong(tmp_path: Path, content: bytes, fault: str) -> None:
    path = tmp_path / "images"
    path.write_bytes(content)
    with refused("data-damaged", path, fault):
        idx.read(path, dimensions=3)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with refused("file-missing", tmp_path / "absent"):
        idx.read(tmp_path / "absent", dimensions=1)


@given(st.binary(max_size=64))
def test_any_bytes_are_an_array_or_an_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "file")
        path.write_bytes(content)
        try:
            array = idx.read(path, dimensions=1)
        except RunError:
            return
        assert array.shape == (len(array.values),)
