"""The start of a container and the import of its framework are measured, cold and warm.

The slowest modules of the import are found.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from trimaran.engines import BuiltImage
from trimaran.images import definition
from trimaran.provenance import starts
from trimaran.provenance.inspection import Examination

PROFILE = """\
import time: self [us] | cumulative | imported package
import time:       500 |        500 |   encodings.utf_8
a warning of a library
import time:   1500000 |    1600000 |   torch._C
import time:      7000 |    1700000 | torch
import time:      9000 |       9000 |     numpy
import time:      8000 |       8000 |     a
import time:      6000 |       6000 |     b
"""


class Engine:
    """An engine whose containers take as many seconds as `takes` lists, by a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, takes: Sequence[float]) -> None:
        self.takes, self.now = list(takes), 0.0
        self.programs: list[str] = []
        monkeypatch.setattr("time.monotonic", lambda: self.now)

    def inside(self, built: BuiltImage, words: Sequence[str]) -> str:
        if "importtime" in words[1]:
            return PROFILE
        self.programs.append(words[1])
        self.now += self.takes.pop(0)
        return ""


def built(path: Path | str) -> BuiltImage:
    return BuiltImage("x", "apptainer", str(path), None, "0" * 64, 1)


def cached(path: Path) -> bool:
    """Return whether the first page of a file is in the page cache (mincore(2))."""
    with path.open("rb") as file, mmap.mmap(
        file.fileno(), mmap.PAGESIZE, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
    ) as mapped:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        state = ctypes.create_string_buffer(1)
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), mmap.PAGESIZE, state) == 0
        return bool(state.raw[0] & 1)


def test_the_first_warm_start_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = Engine(monkeypatch, [9, 1, 2, 5, 4, 3])
    assert starts.warm(engine, built("x"), "pass") == 3
    assert engine.programs == ["pass"] * 6


def test_an_image_is_dropped_from_the_page_cache_before_each_cold_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = tmp_path / "image.sif"
    image.touch()
    dropped: list[Path] = []
    monkeypatch.setattr(starts, "drop", dropped.append)
    engine: Any = Engine(monkeypatch, [7, 8, 6])
    assert starts.cold(engine, built(image), "pass") == 7
    assert dropped == [image] * starts.COLD


def test_an_image_that_is_no_file_has_no_cold_start(monkeypatch: pytest.MonkeyPatch) -> None:
    engine: Any = Engine(monkeypatch, [])
    found = built("localhost/trimaran/x")
    assert starts.cold(engine, found, "pass") is None


def test_a_dropped_file_is_not_in_the_page_cache() -> None:
    # Not in /tmp, which may be in memory only.
    image = Path(__file__).parent / ".dropped"
    try:
        image.write_bytes(b"x" * mmap.PAGESIZE)
        descriptor = os.open(image, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        image.read_bytes()
        assert cached(image)
        starts.drop(image)
        assert not cached(image)
    finally:
        image.unlink()


def test_the_slowest_modules_are_those_with_the_most_time_of_their_own() -> None:
    found = [(slow.module, slow.seconds) for slow in starts.slowest(PROFILE)]
    assert found == [("torch._C", 1.5), ("numpy", 0.009), ("a", 0.008), ("torch", 0.007),
                     ("b", 0.006)]


def test_the_import_of_a_framework_is_measured_warm_and_cold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    image = tmp_path / "image.sif"
    image.touch()
    engine: Any = Engine(monkeypatch, [9, 2, 2, 2, 2, 2, 4, 4, 4])
    found = starts.imported(engine, built(image), "torch")
    assert (found.module, found.warm, found.cold) == ("torch", 2, 4)
    assert found.slowest[0].module == "torch._C"
    assert set(engine.programs) == {"import torch"}


@pytest.mark.parametrize(("name", "module"), [
    ("torch-cuda13", "torch"), ("torch-cpu-dev", "torch"), ("tensorflow-rocm", "tensorflow"),
])
def test_the_module_of_a_framework_image(name: str, module: str) -> None:
    assert starts.framework(definition.load(name)) == module


def test_evidence_of_before_these_times_is_valid() -> None:
    fields = Examination.model_fields
    assert not fields["start_cold"].is_required()
    assert not fields["imported"].is_required()
