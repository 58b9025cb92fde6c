"""Tests of every format: records are read back unchanged, and damage is found."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import h5py
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photos import MAGIC, jpeg, with_magic
from shards import formats, protobuf
from shards.formats import recordio, tfrecord
from shards.formats.records import Read, Record
from shards.kinds import ImageFormat, Kind

NAMES: tuple[ImageFormat, ...] = get_args(ImageFormat)
INDEXED = ("webdataset", "tfrecord", "recordio")


def write(name: ImageFormat, place: Path, samples: list[tuple[int, bytes]]) -> tuple[Path, Path]:
    """Write one shard, and return the paths of the shard and of its index."""
    records = [
        Record(7 * at, f"train/ü/{at}.jpg", (label,), (image,), "jpg")
        for at, (label, image) in enumerate(samples)
    ]
    shard = formats.write_shard(name, place, "train-00000", Kind(), records)
    assert shard.samples == len(samples)
    assert (shard.index is not None) == (name in INDEXED)
    return place / shard.file, place / (shard.index or "none")


def read(name: ImageFormat, path: Path, index: Path) -> list[Read | str]:
    return list(formats.load(name).scan(path, index if name in INDEXED else None, Kind()))


def pairs(found: list[Read | str]) -> list[tuple[int, bytes]]:
    """Return the class and the image of each record without a fault; skip all other results."""
    return [(*one.labels, *one.frames) for one in found if isinstance(one, Read) and not one.fault]


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 999), st.binary(max_size=40)), min_size=1, max_size=9))
def test_what_was_put_in_comes_back(name: ImageFormat, samples: list[tuple[int, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        found = read(name, *write(name, Path(place), samples))
    assert pairs(found) == samples
    assert not [one for one in found if isinstance(one, str) or one.fault]


@pytest.mark.parametrize("name", NAMES)
def test_images_of_many_sizes_come_back(name: ImageFormat, tmp_path: Path) -> None:
    source = random.Random(1)  # noqa: S311 - sizes of a test
    samples = [
        (at % 10, source.randbytes(source.choice((0, 1, 500, 5_000, 300_000)))) for at in range(60)
    ]
    found = read(name, *write(name, tmp_path, samples))
    assert pairs(found) == samples


@pytest.mark.parametrize("name", NAMES)
def test_the_same_samples_give_the_same_bytes(name: ImageFormat, tmp_path: Path) -> None:
    written = []
    for place in (tmp_path / "a", tmp_path / "b"):
        place.mkdir()
        write(name, place, [(at, jpeg(at)) for at in range(5)])
        written.append(
            {
                path.relative_to(place): path.read_bytes()
                for path in place.rglob("*")
                if path.is_file()
            }
        )
    assert written[0] == written[1]


def test_lmdb_grows_beyond_its_first_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shards.formats.lmdb._MAP", 1 << 16)
    samples = [(at, bytes(50_000)) for at in range(20)]
    found = read("lmdb", *write("lmdb", tmp_path, samples))
    assert pairs(found) == samples


@pytest.mark.parametrize("kept", [0.5, 0.9, 0.999])
def test_an_lmdb_that_is_cut_off_is_a_fault_and_not_the_end_of_the_process(
    tmp_path: Path, kept: float
) -> None:
    samples = [(at, bytes(5_000)) for at in range(400)]
    path, _ = write("lmdb", tmp_path, samples)
    with path.open("rb+") as file:
        file.truncate(int(path.stat().st_size * kept))
    code = (
        "import pathlib, sys; from shards.formats import lmdb\n"
        "from shards.kinds import Kind\n"
        "print(list(lmdb.scan(pathlib.Path(sys.argv[1]), None, Kind())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, "LMDB reads behind the end of the file"
    assert "is cut off: it has" in done.stdout


WRITE_LIMITED = """
import resource, sys
from pathlib import Path
from shards import formats
from shards.formats.records import Record
from shards.kinds import Kind
name, place, *limits = sys.argv[1:]
records = [Record(at, f"{at}.jpg", (0,), (bytes(700),), "jpg") for at in range(30)]
for limit in limits:
    Path(place, limit).mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    try:
        formats.write_shard(name, Path(place, limit), "s", Kind(), records)
    except OSError as error:
        print(error.strerror)
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_disk_that_fills_up_at_any_time_is_an_error_of_files(
    name: ImageFormat, tmp_path: Path
) -> None:
    """A limit on the size of files simulates a full disk: each attempt must raise an OSError.

    With the last two limits, HDF5 fails after it has written the images.
    """
    # Without -B, Python would keep bytecode that is cut off at the limit: see smalldisk.
    program = [sys.executable, "-B", "-c", WRITE_LIMITED]
    words = [*program, name, str(tmp_path), "12000", "21100", "21900"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) == 3
    assert all("too large" in one or "disk full" in one for one in said), said


@pytest.mark.parametrize("name", INDEXED)
def test_a_cut_shard_is_found_and_the_record_said(name: ImageFormat, tmp_path: Path) -> None:
    samples = [(at, jpeg(at)) for at in range(4)]
    path, index = write(name, tmp_path, samples)
    content = path.read_bytes()
    path.write_bytes(content[: content.index(samples[3][1]) + 100])
    found = read(name, path, index)
    assert [label for label, _ in pairs(found[:3])] == [0, 1, 2]
    assert "cut off" in str(found[3])


@pytest.mark.parametrize("name", INDEXED)
def test_an_index_of_another_shard_is_found(name: ImageFormat, tmp_path: Path) -> None:
    path, index = write(name, tmp_path, [(at, jpeg(at)) for at in range(4)])
    lines = index.read_text().split("\n")
    index.write_text("\n".join(lines[:-2]) + "\n")  # one line less
    assert any("lines" in one for one in read(name, path, index) if isinstance(one, str))
    index.write_text("\n".join(line.replace("0", "1") for line in lines))
    faults = [one for one in read(name, path, index) if isinstance(one, Read) and one.fault]
    assert index.name in str(faults[0].fault)


def joined(lines: list[list[str]]) -> None:
    lines[1][4:] = lines[2][4:]


def repeated(lines: list[list[str]]) -> None:
    lines[1] = lines[2]


def cut_out(lines: list[list[str]]) -> None:
    del lines[2]


def cut_short(lines: list[list[str]]) -> None:
    del lines[3]


def too_large(lines: list[list[str]]) -> None:
    lines[1][2] = "9" * 14


def too_far(lines: list[list[str]]) -> None:
    lines[1][1] = "9" * 25


def no_number(lines: list[list[str]]) -> None:
    lines[1][1] = "²"


@pytest.mark.parametrize(
    ("edit", "number", "fault"),
    [
        (joined, 1, "joined with files of another sample"),
        (repeated, 1, "does not begin where the one before it"),
        (cut_out, 2, "does not begin where the one before it"),
        (cut_short, 3, "has more samples"),
        (too_large, 1, "is not where index"),
        (too_far, 1, "is not where index"),
        (no_number, 1, "is not where index"),
    ],
)
def test_an_index_of_webdataset_must_lead_to_each_sample_once(
    tmp_path: Path, edit: Callable[[list[list[str]]], None], number: int, fault: str
) -> None:
    path, index = write("webdataset", tmp_path, [(at, jpeg(at)) for at in range(4)])
    lines = [line.split(" ") for line in index.read_text().splitlines()[1:]]
    edit(lines)
    text = "".join(f"{' '.join(line)}\n" for line in lines)
    index.write_text(f"v1.2 {len(lines)}\n{text}")
    found = read("webdataset", path, index)
    at = found[number]
    assert fault in (at if isinstance(at, str) else at.fault or "")
    assert not [one for one in found[:number] if isinstance(one, str) or one.fault]


def test_a_flipped_bit_in_tfrecord_is_found(tmp_path: Path) -> None:
    path, index = write("tfrecord", tmp_path, [(at, jpeg(at)) for at in range(4)])
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    (fault,) = [
        one.fault for one in read("tfrecord", path, index) if isinstance(one, Read) and one.fault
    ]
    assert "CRC32C is wrong" in fault


def test_checksum_is_that_of_the_specification() -> None:
    # RFC 3720, B.4: 32 bytes of zeros have the CRC32C 8a9136aa; record_writer.h masks it.
    crc = 0x8A9136AA
    assert tfrecord.masked(bytes(32)) == ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@settings(deadline=None)
@given(st.integers(0, 2**63 - 1), st.binary(max_size=300))
def test_wire_format_round_trip(number: int, content: bytes) -> None:
    message = b"".join(
        protobuf.encoded(*one) for one in ((3, number), (15, content), (16, 0))
    )
    assert list(protobuf.fields(memoryview(message))) == [(3, number), (15, content), (16, 0)]


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_an_error(content: bytes) -> None:
    try:
        assert all(number >= 0 for number, _ in protobuf.fields(memoryview(content)))
    except ValueError:
        return


@settings(deadline=None)
@given(st.lists(st.sampled_from([MAGIC, b"a", b"bc", b"defg"]), max_size=12).map(b"".join))
def test_recordio_parts_hold_no_magic_number_where_a_record_may_begin(content: bytes) -> None:
    parts = recordio.split(content)
    assert MAGIC.join(parts) == content
    assert all(len(part) % 4 == 0 for part in parts[:-1])
    assert not any(part[at : at + 4] == MAGIC for part in parts for at in range(0, len(part), 4))


def test_recordio_has_the_layout_of_mxnet(tmp_path: Path) -> None:
    path, index = write("recordio", tmp_path, [(1, b"abc"), (2, with_magic())])
    content = path.read_bytes()
    assert content[:36] == struct.pack("<IIIfQQ", 0xCED7230A, 27, 0, 1.0, 0, 0) + b"abc\0"
    assert struct.unpack("<I", content[40:44])[0] >> 29 == 1  # the first of several parts
    assert index.read_text() == "0\t0\n7\t36\n"


def test_hdf5_has_the_agreed_layout(tmp_path: Path) -> None:
    path, _ = write("hdf5", tmp_path, [(1, b"abc"), (2, b""), (0, b"de")])
    with h5py.File(path) as file:
        assert file["images"][:].tobytes() == b"abcde"
        assert file["offsets"][:].tolist() == [0, 3, 3, 5]
        assert file["labels"][:].tolist() == [1, 2, 0]
        assert [str(file[name].dtype) for name in ("images", "offsets", "labels")] == [
            "uint8",
            "int64",
            "int64",
        ]
        begin = file["images"].id.get_offset()
    assert path.read_bytes()[begin : begin + 5] == b"abcde"
    assert [one.name for one in tmp_path.glob("train*")] == ["train-00000.h5"]
    path.write_bytes(path.read_bytes()[:-1])
    assert "cannot be read by HDF5" in str(read("hdf5", path, path))


@pytest.mark.parametrize(
    ("shape", "fault"), [((), "cannot be read by HDF5"), ((1 << 50,), "more than the file can")]
)
def test_hdf5_tables_of_another_shape_are_a_fault(
    tmp_path: Path, shape: tuple[int, ...], fault: str
) -> None:
    path, _ = write("hdf5", tmp_path, [(1, b"abc")])
    with h5py.File(path, "a") as file:
        del file["offsets"]
        file.create_dataset("offsets", shape, "int64")
    assert fault in str(read("hdf5", path, path))
