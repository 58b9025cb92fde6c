"""Test that sequences, and samples with any number of classes, are read as they were written."""

from __future__ import annotations

import tempfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import formats
from shards.formats.records import Read, Record
from shards.kinds import ImageFormat, Kind, Labels, SampleKind

ABLE: tuple[ImageFormat, ...] = ("webdataset", "tfrecord", "hdf5")
KINDS = [Kind("multi", "image"), Kind("none", "sequence"), Kind("multi", "sequence"),
         Kind("class", "sequence"), Kind("none", "image")]
Sample = tuple[tuple[int, ...], tuple[bytes, ...]]


def samples(kind: Kind) -> st.SearchStrategy[list[Sample]]:
    label = st.integers(0, 300)
    labels = {
        "class": st.tuples(label),
        "multi": st.lists(label, max_size=4, unique=True).map(lambda found: tuple(sorted(found))),
        "none": st.just(()),
    }[kind.labels]
    most = 12 if kind.sample == "sequence" else 1
    frames = st.lists(st.binary(max_size=30), min_size=1, max_size=most).map(tuple)
    return st.lists(st.tuples(labels, frames), min_size=1, max_size=6)


def write(name: ImageFormat, place: Path, kind: Kind, found: list[Sample]) -> tuple[Path, Path]:
    records = [Record(at, f"train/{at}", *one, "png") for at, one in enumerate(found)]
    shard = formats.write_shard(name, place, "train-00000", kind, records)
    return place / shard.file, place / (shard.index or "none")


def read(name: ImageFormat, path: Path, index: Path, kind: Kind) -> list[Read | str]:
    return list(formats.load(name).scan(path, index if index.is_file() else None, kind))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.labels}-{kind.sample}")
@pytest.mark.parametrize("name", ABLE)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_what_was_put_in_comes_back(name: ImageFormat, kind: Kind, data: st.DataObject) -> None:
    put = data.draw(samples(kind))
    with tempfile.TemporaryDirectory() as place:
        found = read(name, *write(name, Path(place), kind, put), kind)
    assert found == [Read(one.name, *pair) for one, pair in zip(found, put, strict=True)
                     if isinstance(one, Read)]


@pytest.mark.parametrize("name", ABLE)
@pytest.mark.parametrize(
    ("wrote", "asked"),
    [("class", "none"), ("none", "class"), ("multi", "none"), ("none", "multi")],
)
def test_labels_that_are_not_those_that_were_said_are_no_record_without_fault(
    name: ImageFormat, wrote: Labels, asked: Labels, tmp_path: Path
) -> None:
    put: list[Sample] = [((1,) if wrote != "none" else (), (b"x",))] * 3
    found = read(name, *write(name, tmp_path, Kind(wrote), put), Kind(asked))
    labels = {one.labels for one in found if isinstance(one, Read) and not one.fault}
    assert labels in (set(), {()}) if asked == "none" else labels == set()


@pytest.mark.parametrize("name", ABLE)
@pytest.mark.parametrize(("wrote", "asked"), [("image", "sequence"), ("sequence", "image")])
def test_images_and_sequences_are_not_taken_for_each_other(
    name: ImageFormat, wrote: SampleKind, asked: SampleKind, tmp_path: Path
) -> None:
    put: list[Sample] = [((1,), (b"a", b"b")[: 1 if wrote == "image" else 2])] * 3
    found = read(name, *write(name, tmp_path, Kind("class", wrote), put), Kind("class", asked))
    whole = [one for one in found if isinstance(one, Read) and not one.fault]
    # Where the layouts do not differ, as in TFRecord, `data verify` counts the images.
    assert all(len(one.frames) == len(put[0][1]) for one in whole)


@pytest.mark.parametrize("name", ["recordio", "lmdb"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_format_without_a_place_for_them_cannot_hold_them(name: ImageFormat, kind: Kind) -> None:
    assert not formats.can_hold(name, kind)
    assert formats.can_hold(name, Kind())
    assert all(formats.can_hold(able, kind) for able in ABLE)


def test_a_sequence_of_which_a_frame_is_missing_in_the_index_is_a_fault(tmp_path: Path) -> None:
    kind = Kind("none", "sequence")
    path, index = write("webdataset", tmp_path, kind, [((), (b"a", b"b", b"c"))])
    text = index.read_text()
    head, line = text.splitlines()
    words = line.split(" ")
    index.write_text(f"{head}\n{' '.join(words[:4] + words[8:])}\n")
    (found,) = read("webdataset", path, index, kind)
    assert isinstance(found, Read)
    assert found.fault


@pytest.mark.parametrize(
    ("name", "values"),
    [("sample_offsets", [0, 5, 3]), ("label_offsets", [0, 9, 2]), ("sample_offsets", [0, 3]),
     ("label_offsets", [1, 1, 2])],
)
def test_offsets_of_hdf5_that_do_not_fit_are_faults(
    name: str, values: list[int], tmp_path: Path
) -> None:
    kind = Kind("multi", "sequence")
    put: list[Sample] = [((1,), (b"a", b"b")), ((2,), (b"c",))]
    path, index = write("hdf5", tmp_path, kind, put)
    with h5py.File(path, "r+") as file:
        del file[name]
        file[name] = np.array(values, np.int64)
    found = read("hdf5", path, index, kind)
    assert any(isinstance(one, str) or one.fault for one in found)
