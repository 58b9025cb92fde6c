"""Tests of the packed formats: all give the same samples, and each error names the file."""

import json
import struct
from pathlib import Path

import pytest
from written_shards import (
    FORMATS,
    WRITERS,
    Convert,
    converted,
    datum,
    image_folder,
    list_checksum,
    recordio_frames,
    samples_of,
)

from shards.description import Shard
from shards.kinds import Kind
from trainkit.data.dataset import open_dataset
from trainkit.data.records import Records
from trainkit.exits import DataError
from trainkit.testing.refusals import refused

BROKEN = {"tfrecord": ".tfrecord", "recordio": ".rec", "hdf5": ".h5", "lmdb": ".lmdb/data.mdb"}


def test_the_keys_of_a_database_may_begin_anywhere(tmp_path: Path) -> None:
    """An LMDB shard with the keys 8 to 12 has the samples 0 to 4, as in a second shard."""
    lmdb = pytest.importorskip("lmdb")
    with (
        lmdb.open(str(tmp_path / "a.lmdb"), map_size=1 << 20, lock=False) as database,
        database.begin(write=True) as transaction,
    ):
        for number in range(8, 13):
            transaction.put(b"%08d" % number, datum(b"image %d" % number, number))
    file = tmp_path / "a.lmdb/data.mdb"
    entry = Shard(
        file="a.lmdb/data.mdb", samples=5, bytes=file.stat().st_size, sha256="0" * 64
    )
    records = Records(tmp_path, "lmdb", Kind(), 20, [entry])
    found = [(records.label(at), records.encoded(at).tobytes()) for at in range(len(records))]
    assert found == [(number, b"image %d" % number) for number in range(8, 13)]
    assert records.describe(2).endswith("record 00000010")


@pytest.mark.parametrize("kind", WRITERS)
def test_records_are_views_and_name_themselves(tiny: Path, convert: Convert, kind: str) -> None:
    records = open_dataset(convert(tiny, kind)).records("train")
    assert len(records) == 100
    image = records.encoded(57)
    assert not image.flags.owndata
    assert not image.flags.writeable
    assert f"train-00001{BROKEN[kind]}: record " in records.describe(57)
    assert "17" in records.describe(57).rpartition("record ")[2]


def test_the_fingerprint_tells_formats_and_contents_apart(
    tiny: Path, numbered: Path, convert: Convert
) -> None:
    prints = {open_dataset(convert(tiny, kind)).fingerprint() for kind in FORMATS}
    prints.add(open_dataset(numbered).fingerprint())
    assert len(prints) == len(FORMATS) + 1
    assert open_dataset(convert(tiny, "hdf5")).evaluation_split() == "test"


def test_an_image_folder_is_read_as_it_is(tiny: Path, tmp_path: Path, convert: Convert) -> None:
    packed = samples_of(tiny)
    folder = image_folder(tmp_path / "folder", packed, classes=2)
    (folder / "train" / "class 0" / "notes.txt").write_text("not an image")
    (folder / "train" / "class 0" / "._1.png").write_text("left by a system")
    for split in ("train", "test"):
        (folder / split / ".ipynb_checkpoints").mkdir()
    dataset = open_dataset(folder)
    assert dataset.classes == ("class 0", "class 1")
    assert dataset.channels == 3
    assert dataset.mean == (0.485, 0.456, 0.406)
    assert dataset.evaluation_split() == "test"
    for split, (images, labels) in packed.items():
        order = sorted(range(len(images)), key=lambda n, of=labels: (of[n], n))
        records = dataset.records(split)
        assert [records.label(n) for n in range(len(records))] == sorted(labels)
        assert [records.encoded(n).tobytes() for n in range(len(records))] == [
            images[n] for n in order
        ]
    before = dataset.fingerprint()
    (folder / "train" / "class 1" / "new.png").write_bytes(packed["train"][0][0])
    assert open_dataset(folder).fingerprint() != before


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["train"], "train has no folders of images"),
        (["train/a", "val/b"], r"val/b: a class that .*train does not have"),
    ],
)
def test_a_wrong_image_folder_is_named(tmp_path: Path, names: list[str], said: str) -> None:
    for name in names:
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(DataError, match=said):
        open_dataset(tmp_path)


def test_an_image_folder_without_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    with refused(DataError, "split-empty", "dataset.json"):
        open_dataset(tmp_path).records("train")


@pytest.fixture
def broken(tiny: Path, tmp_path: Path):
    """Return a function that writes the data set `tiny` in a format, for tests that damage it.

    The function returns the folder and the path of the first shard.
    """

    def run(kind: str) -> tuple[Path, Path]:
        folder = converted(tiny, tmp_path / kind, kind, samples_of(tiny))
        return folder, folder / f"train-00000{BROKEN[kind]}"

    return run


@pytest.mark.parametrize("kind", WRITERS)
def test_a_truncated_and_a_missing_shard_are_named(broken, kind: str) -> None:
    folder, shard = broken(kind)
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-100])
    with refused(DataError, "data-damaged", shard.name, f" {size - 100} ", f" {size}"):
        open_dataset(folder).records("train")
    shard.unlink()
    with refused(DataError, "data-damaged", shard.name, "exist"):
        open_dataset(folder).records("train")


@pytest.mark.parametrize("kind", WRITERS)
def test_a_shard_of_something_else_is_named(broken, kind: str) -> None:
    folder, shard = broken(kind)
    shard.write_bytes(bytes(range(256)) * (shard.stat().st_size // 256 + 1))
    document = json.loads((folder / "dataset.json").read_text())
    document["splits"]["train"]["shards"][0]["bytes"] = shard.stat().st_size
    (folder / "dataset.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=shard.name):
        open_dataset(folder).records("train")


@pytest.mark.parametrize("kind", ["tfrecord", "recordio"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("\n", " x\n", 1), "malformed: needs two"),
        (lambda text: text + "1\n", "malformed: needs two"),
        (lambda text: text.partition("\n")[2], "39 samples are listed, but dataset.json has 40"),
        (lambda text: text.rstrip() + "99999\n", "points beyond the end|does not belong"),
        (lambda text: "8 20\n" + text.partition("\n")[2], "does not belong to"),
        (lambda text: "\N{POUND SIGN}", "cannot be read"),
    ],
)
def test_a_wrong_index_is_named(broken, kind: str, change, said: str) -> None:
    folder, _ = broken(kind)
    index = folder / "train-00000.idx"
    index.write_text(change(index.read_text()))
    with pytest.raises(DataError, match=rf"train-00000\.idx.*({said})"):
        open_dataset(folder).records("train")


@pytest.mark.parametrize("kind", WRITERS)
def test_a_label_that_is_no_class_is_named(tiny: Path, tmp_path: Path, kind: str) -> None:
    samples = samples_of(tiny)
    samples["train"][1][41], samples["train"][1][42] = 2, -1 if kind != "lmdb" else 1 << 40
    records = open_dataset(converted(tiny, tmp_path / kind, kind, samples)).records("train")
    assert records.label(40) in (0, 1)
    for number in (41, 42):
        with pytest.raises(
            DataError,
            match=rf"train-00001{BROKEN[kind]}: record 0*{number - 40}.*"
            r"class is -?\d+, not a number from 0 to 1",
        ):
            records.label(number)


@pytest.mark.parametrize(("kind", "at"), [("tfrecord", 0), ("tfrecord", 12), ("recordio", 0)])
def test_a_damaged_frame_is_named(broken, kind: str, at: int) -> None:
    folder, shard = broken(kind)
    start = int((folder / "train-00000.idx").read_text().split()[2 if kind == "tfrecord" else 3])
    content = bytearray(shard.read_bytes())
    content[start + at] ^= 0x7F
    shard.write_bytes(content)
    records = open_dataset(folder).records("train")
    with pytest.raises(DataError, match=rf"{shard.name}: record 1 "):
        records.encoded(1)


def test_recordio_joins_a_record_that_holds_the_magic_number(broken) -> None:
    image = b"\x89PNG" + struct.pack("<I", 0xCED7230A) * 3 + b"end"
    payload = struct.pack("<IfQQ", 0, 1.0, 7, 0) + image
    folder, shard = broken("recordio")
    shard.write_bytes(recordio_frames(payload) + recordio_frames(payload[:24] + b"plain"))
    (folder / "train-00000.idx").write_text(f"0\t0\n1\t{len(recordio_frames(payload))}\n")
    document = json.loads((folder / "dataset.json").read_text())
    entry = document["splits"]["train"]["shards"][0]
    entry |= {"bytes": shard.stat().st_size, "samples": 2}
    (folder / "dataset.json").write_text(json.dumps(document))
    records = open_dataset(folder).records("train")
    assert records.encoded(0).tobytes() == image
    assert records.encoded(1).tobytes() == b"plain"
    assert records.label(0) == 1


def test_tables_of_hdf5_that_do_not_fit_are_named(broken) -> None:
    import h5py

    folder, shard = broken("hdf5")
    with h5py.File(shard, "r+") as file:
        file["offsets"][1] = 10**9
    with refused(DataError, "data-damaged", "train-00000.h5: 'offsets'"):
        open_dataset(folder).records("train")


def test_compressed_images_of_hdf5_are_refused(broken) -> None:
    import h5py

    folder, shard = broken("hdf5")
    with h5py.File(shard, "r+") as file:
        images = file["images"][:]
        del file["images"]
        file.create_dataset("images", data=images, compression="gzip")
    document = json.loads((folder / "dataset.json").read_text())
    document["splits"]["train"]["shards"][0]["bytes"] = shard.stat().st_size
    (folder / "dataset.json").write_text(json.dumps(document))
    with refused(DataError, "data-damaged", shard.name, "contiguous"):
        open_dataset(folder).records("train")


def test_an_entry_without_its_size_is_named(broken) -> None:
    folder, _ = broken("hdf5")
    document = json.loads((folder / "dataset.json").read_text())
    del document["splits"]["train"]["shards"][0]["bytes"]
    (folder / "dataset.json").write_text(json.dumps(document))
    with refused(DataError, "data-invalid", "'splits.train.shards.0.bytes'"):
        open_dataset(folder).records("train")


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "recordio"])
def test_an_index_with_another_checksum_than_listed_is_named(
    tiny: Path, tmp_path: Path, kind: str
) -> None:
    """If an index changes (here: its lines are reversed), the error names the index."""
    folder = converted(tiny, tmp_path / "data", kind, samples_of(tiny))
    path = folder / "train-00000.idx"
    list_checksum(folder, path)
    assert len(open_dataset(folder).records("train")) == 100
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    with refused(DataError, "data-damaged", "train-00000.idx", "checksum"):
        open_dataset(folder).records("train")
