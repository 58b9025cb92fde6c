"""Tests of samples with any number of classes or none, and of sequences, in all formats."""

import hashlib
import json
import shutil
from itertools import product
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from written_kinds import WRITERS, Sample, packed

from shards import description
from shards.description import Dataset, PackedSplit, TextFacts, Tokenizer
from shards.formats import tokens
from shards.kinds import Labels
from trainkit.data.dataset import open_dataset
from trainkit.data.records import Records
from trainkit.data.staging import stage
from trainkit.exits import DataError
from trainkit.testing.refusals import refused

LABELS, SAMPLES = get_args(Labels), ("image", "sequence")
CLASSES = {"class": [[3], [0], [4]], "multi": [[0, 2, 4], [], [3]], "none": [[], [], []]}
FRAMES = {"image": [[b"a"], [b"bcd"], [b"e"]],
          "sequence": [[b"a", b"bcd", b"e"], [b"fg"], [b"h", b"i"] * 6]}
KINDS = [kind for kind in product(LABELS, SAMPLES) if kind != ("class", "image")]


def samples_of(labels: str, sample: str) -> list[Sample]:
    return list(zip(CLASSES[labels], FRAMES[sample], strict=True))


def opened(folder: Path) -> Records:
    return open_dataset(folder, labels=LABELS, samples=SAMPLES).records("train")


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize(("labels", "sample"), KINDS)
def test_what_was_written_is_read(form: str, labels: str, sample: str, tmp_path: Path) -> None:
    put = samples_of(labels, sample)
    folder = packed(tmp_path / "data", form, labels, sample, put)
    dataset = open_dataset(folder, labels=[labels], samples=[sample])
    assert (dataset.kind.labels, dataset.kind.sample) == (labels, sample)
    records = dataset.records("train")
    assert len(records) == 3
    for number, (classes, frames) in enumerate(put):
        assert [frame.tobytes() for frame in records.frames(number)] == frames
        assert not any(frame.flags.owndata for frame in records.frames(number))
        assert records.labels(number) == classes
        assert records.vector(number).tolist() == [float(n in classes) for n in range(5)]
        assert "train-00000." in records.describe(number)


@pytest.mark.parametrize("form", WRITERS)
def test_a_data_set_without_labels_needs_no_classes(form: str, tmp_path: Path) -> None:
    put = samples_of("none", "sequence")
    folder = packed(tmp_path / "data", form, "none", "sequence", put, classes=0)
    assert opened(folder).labels(1) == []
    folder = packed(tmp_path / "multi", form, "multi", "image", samples_of("multi", "image"), 0)
    with refused(DataError, "data-invalid", "dataset.json: ", "'labels' is multi"):
        opened(folder)


def test_an_app_gets_only_the_kinds_that_it_takes(tmp_path: Path) -> None:
    """A data set is refused if the app does not support its kind of labels or samples.

    For example, an image classifier must not use only the first frame or the first class.
    """
    folder = packed(
        tmp_path / "data", "webdataset", "multi", "sequence", samples_of("multi", "sequence")
    )
    with refused(DataError, "data-unsuitable", "'labels' is multi", " class"):
        open_dataset(folder)
    with refused(DataError, "data-unsuitable", "'sample' is sequence", " image"):
        open_dataset(folder, labels=("class", "multi"))


def edit(folder: Path, **values: object) -> None:
    document = json.loads((folder / "dataset.json").read_text())
    (folder / "dataset.json").write_text(json.dumps(document | values))


@pytest.mark.parametrize("key", ["labels", "sample"])
@pytest.mark.parametrize("value", ["several", None, ["class"], 3])
def test_a_kind_that_nobody_knows_is_named(key: str, value: object, tmp_path: Path) -> None:
    put = samples_of("none", "image")
    folder = packed(tmp_path / "data", "webdataset", "none", "image", put)
    edit(folder, **{key: value})
    with refused(DataError, "data-invalid", f"dataset.json: '{key}' "):
        opened(folder)


@pytest.mark.parametrize("form", ["lmdb", "recordio"])
@pytest.mark.parametrize(("labels", "sample"), KINDS)
def test_formats_whose_records_hold_one_image_of_one_class_refuse(
    form: str, labels: str, sample: str, tmp_path: Path
) -> None:
    folder = packed(tmp_path / "data", "webdataset", labels, sample, samples_of(labels, sample))
    edit(folder, format=form)
    with refused(DataError, "format-unsuitable", folder, f" {form}: "):
        opened(folder)


@pytest.mark.parametrize("form", ["webdataset", "tfrecord"])
@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ([1, 5], "its class is 5, not a number from 0 to 4"),
        ([3, 1], "its classes 3, 1 do not increase"),
        ([2, 2], "its classes 2, 2 do not increase"),
    ],
)
def test_classes_that_cannot_be_are_named(
    form: str, classes: list[int], said: str, tmp_path: Path
) -> None:
    put = [([0], [b"a"]), (classes, [b"b"])]
    records = opened(packed(tmp_path / "data", form, "multi", "image", put))
    assert records.labels(0) == [0]
    with pytest.raises(DataError, match=rf"train-00000\.\w+: record 0*1\b.*{said}"):
        records.labels(1)


@pytest.mark.parametrize("form", ["webdataset", "tfrecord"])
@pytest.mark.parametrize("classes", [[], [1, 2]])
def test_not_one_class_is_named_where_each_sample_has_one(
    form: str, classes: list[int], tmp_path: Path
) -> None:
    folder = packed(tmp_path / "data", form, "multi", "image", [([0], [b"a"]), (classes, [b"b"])])
    edit(folder, labels="class")
    with refused(DataError, "record-invalid", "record ", f" {len(classes)} classes"):
        opened(folder).labels(1)


def test_a_class_that_is_no_number_is_named(tmp_path: Path) -> None:
    folder = packed(tmp_path / "data", "webdataset", "multi", "image", [([1, 2], [b"a"])])
    shard = folder / "train-00000.tar"
    shard.write_bytes(shard.read_bytes().replace(b"1 2", b"1,2"))
    with refused(DataError, "data-damaged", "00000000.png", "b'1,2'"):
        opened(folder).labels(0)


@pytest.mark.parametrize(("count", "sample"), [(0, "sequence"), (0, "image"), (2, "image")])
def test_a_wrong_number_of_frames_in_tfrecord_is_named(
    count: int, sample: str, tmp_path: Path
) -> None:
    put = [([0], [b"a"]), ([0], [b"b"] * count)]
    records = opened(packed(tmp_path / "data", "tfrecord", "class", sample, put))
    wanted = "one or more" if sample == "sequence" else "one"
    with refused(DataError, "record-invalid", "record 1 ", f" {count} images", f" {wanted}"):
        records.frames(1)


def test_a_sequence_without_frames_in_hdf5_is_named(tmp_path: Path) -> None:
    put = [([0], [b"a"]), ([0], [])]
    records = opened(packed(tmp_path / "data", "hdf5", "class", "sequence", put))
    with refused(DataError, "record-invalid", "record 1 ", " 0 images"):
        records.frames(1)


@pytest.mark.parametrize("labels", ["class", "multi"])
def test_a_missing_feature_of_tfrecord_is_named(labels: str, tmp_path: Path) -> None:
    put = samples_of("none", "image")
    folder = packed(tmp_path / "data", "tfrecord", "none", "image", put)
    edit(folder, labels=labels)
    with refused(DataError, "data-damaged", "record 2 ", "image/class/label"):
        opened(folder).labels(2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("000001.png 1536", "000002.png 1536", 1),
         r"line 2 lists 000000\.png 000002\.png 000002\.png cls, not 000000\.png, .*… cls"),
        (lambda text: text.replace(" cls ", " txt ", 1), "line 2 lists .*txt"),
        (lambda text: text.replace("000000.png 512 1 00000000.000000.png ", "", 1), "line 2"),
        (lambda text: text.replace("000000.png 512", "000000.png many", 1), "malformed"),
        (lambda text: text.replace("000000.png 512", "000000.png 51200000", 1), "beyond the end"),
    ],
)
def test_a_wrong_index_of_sequences_is_named(change, said: str, tmp_path: Path) -> None:
    put = samples_of("multi", "sequence")
    folder = packed(tmp_path / "data", "webdataset", "multi", "sequence", put)
    index = folder / "train-00000.idx"
    text = index.read_text()
    index.write_text(change(text))
    assert index.read_text() != text
    with pytest.raises(DataError, match=rf"train-00000\.idx.*{said}"):
        opened(folder)


def test_an_index_without_classes_is_refused_where_there_should_be_some(tmp_path: Path) -> None:
    folder = packed(tmp_path / "data", "webdataset", "none", "image", samples_of("none", "image"))
    edit(folder, labels="multi")
    with refused(DataError, "data-damaged", "train-00000.idx", "'cls'"):
        opened(folder)


@pytest.mark.parametrize("name", ["label_offsets", "sample_offsets", "labels"])
@pytest.mark.parametrize("wrong", [[0, 1], [0, 9, 4, 99], [1, 1, 2, 3], None])
def test_tables_of_hdf5_that_do_not_share_out_are_named(
    name: str, wrong: list[int] | None, tmp_path: Path
) -> None:
    import h5py

    put = samples_of("multi", "sequence")
    folder = packed(tmp_path / "data", "hdf5", "multi", "sequence", put)
    shard = folder / "train-00000.h5"
    with h5py.File(shard, "r+") as file:
        del file[name]
        if wrong is not None:
            file[name] = wrong if name != "labels" else wrong[:1]
    document = json.loads((folder / "dataset.json").read_text())
    document["splits"]["train"]["shards"][0]["bytes"] = shard.stat().st_size
    (folder / "dataset.json").write_text(json.dumps(document))
    said = r"do not divide among the 3 samples" if wrong else "is not an HDF5 file with"
    with pytest.raises(DataError, match=rf"train-00000\.h5 .*{said}"):
        opened(folder)


def text_in(place: Path) -> Path:
    """Write a packed text of one document, and return its folder."""
    folder = place / "text"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(b"{}")
    document = np.array([1, 2, 256], np.uint16)
    shard = tokens.write(folder, "train-00000", "uint16", [document], 2)
    described = Dataset(
        name="text", format="tokens", classes=[], labels="none", sample="text",
        splits={"train": PackedSplit.of([shard])}, text=TextFacts(
            token="uint16", vocabulary=257, end=256, documents="file", held_out="folders",  # noqa: S106
            tokenizer=Tokenizer(file="tokenizer.json", made="bytes",
                                sha256=hashlib.sha256(b"{}").hexdigest()),
        ),
    )
    (folder / "dataset.json").write_text(description.text(described))
    return folder


@pytest.mark.parametrize("form", WRITERS)
def test_any_kind_is_staged(form: str, tmp_path: Path) -> None:
    put = samples_of("none", "sequence")
    folder = packed(tmp_path / "data", form, "none", "sequence", put)
    place = stage(folder, tmp_path / "node", local_rank=0)
    shutil.rmtree(folder)
    assert [frame.tobytes() for frame in opened(place).frames(0)] == put[0][1]


def test_a_text_is_not_read_as_images(tmp_path: Path) -> None:
    folder = text_in(tmp_path)
    for samples in (["image"], ["text"]):
        with refused(DataError, "data-unsuitable", folder / "dataset.json"):
            open_dataset(folder, labels=["class", "none"], samples=samples)


def test_a_text_is_staged_with_its_tokenizer(tmp_path: Path) -> None:
    folder = text_in(tmp_path)
    place = stage(folder, tmp_path / "node", local_rank=0)
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.name != ".lock"} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }
    (place / "tokenizer.json").unlink()
    (folder / "tokenizer.json").write_bytes(b"another")
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        stage(folder, tmp_path / "node", local_rank=0)


def test_a_format_whose_library_is_missing_is_named(
    tiny: Path, convert, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = convert(tiny, "hdf5")
    monkeypatch.setitem(__import__("sys").modules, "shards.formats.hdf5", None)
    with refused(DataError, "library-missing", "format hdf5", "shards.formats.hdf5"):
        open_dataset(folder).records("train")
