"""Every format gives the same samples, each once, and names what is wrong with it."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from resnet_shards import FORMATS, WRITERS, converted, image_folder, recordio_frames

from resnet_imagenet import data
from resnet_imagenet.data import Loader
from resnet_imagenet.pipelines import Way
from trainkit.data.dataset import open_dataset
from trainkit.data.order import Plan
from trainkit.exits import DataError
from trainkit.ranks import Ranks
from trainkit.torch.strategy import TorchStrategy

BROKEN = {"tfrecord": ".tfrecord", "recordio": ".rec", "hdf5": ".h5", "lmdb": ".lmdb/data.mdb"}


def samples_of(folder: Path) -> dict:
    dataset = open_dataset(folder)
    found = {}
    for split in dataset.splits:
        records = dataset.records(split)
        numbers = range(len(records))
        images = [records.encoded(n).tobytes() for n in numbers]
        found[split] = (images, [records.label(n) for n in numbers])
    return found


Convert = Callable[[Path, str], Path]


@pytest.fixture(scope="session")
def convert(tmp_path_factory: pytest.TempPathFactory) -> Convert:
    """Return a function that gives a data set in another format, made once."""
    made: dict[tuple[Path, str], Path] = {}

    def run(source: Path, kind: str) -> Path:
        if (source, kind) not in made:
            folder = tmp_path_factory.mktemp(kind) / source.name
            made[source, kind] = converted(source, folder, kind, samples_of(source))
        return made[source, kind]

    return run


def loader(folder: Path, *, training: bool = True, rank: int = 0, size: int = 1, batch: int = 16):
    dataset = open_dataset(folder)
    return Loader(
        dataset.records("train" if training else dataset.evaluation_split()),
        data.preprocessing(dataset, None),
        Way(training, threads=2),
        batch_per_rank=batch,
        seed=1,
        strategy=TorchStrategy(Ranks(rank=rank, size=size)),
    )


def same(one, two) -> bool:
    pairs = list(zip(one, two, strict=True))
    return all(torch.equal(a, b) and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("training", [True, False])
def test_batches_are_those_of_the_same_data_in_webdataset(
    tiny: Path, convert: Convert, kind: str, training: bool
) -> None:
    expected = list(loader(tiny, training=training).epoch(1))
    assert same(expected, list(loader(convert(tiny, kind), training=training).epoch(1)))


@pytest.mark.parametrize("kind", WRITERS)
def test_records_are_views_and_name_themselves(tiny: Path, convert: Convert, kind: str) -> None:
    records = open_dataset(convert(tiny, kind)).records("train")
    assert len(records) == 100
    image = records.encoded(57)
    assert not image.flags.owndata
    assert not image.flags.writeable
    assert f"train-00001{BROKEN[kind]}: record " in records.describe(57)
    assert "17" in records.describe(57).rpartition("record ")[2]


def numbers(images: torch.Tensor) -> list[int]:
    """Return the sample numbers of the flat images of `numbered` (brightness / 2)."""
    return (images.amax(dim=(1, 2, 3)) * 0.25 + 0.5).mul(127.5).round().int().tolist()


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("training", "samples"), [(True, 100), (False, 30)])
def test_ranks_have_each_sample_once_with_its_label(
    numbered: Path, convert: Convert, kind: str, training: bool, samples: int
) -> None:
    folder, seen = convert(numbered, kind), []
    # Global batches of 33 and 29: in the last one of each there is 1 sample for 3 ranks.
    batch = 11 if training else 10
    for rank in range(3):
        batches = list(loader(folder, training=training, rank=rank, size=3, batch=batch).epoch(0))
        assert len(batches) == -(-samples // (3 * batch))
        for images, labels in batches:
            assert len(images) == len(labels)
            found = numbers(images)
            assert labels.tolist() == [n % 2 for n in found]
            seen += found
    assert sorted(seen) == list(range(samples))


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_shares_of_a_batch_are_disjoint_complete_and_even(
    samples: int, per_rank: int, ranks: int, training: bool
) -> None:
    plan = Plan(samples, per_rank * ranks, 1, training)
    order, seen = plan.order(2), []
    for step in range(plan.steps):
        batch = order[step * plan.batch : (step + 1) * plan.batch]
        shares = [batch[plan.share(step, rank, ranks)].tolist() for rank in range(ranks)]
        lengths = [len(share) for share in shares]
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) <= per_rank
        for share in shares:
            seen += share
    assert sorted(seen) == list(range(samples))
    assert seen == order.tolist()


@pytest.mark.parametrize("kind", FORMATS)
def test_going_on_in_the_middle_gives_the_same_batches(
    tiny: Path, convert: Convert, kind: str
) -> None:
    folder = convert(tiny, kind)
    whole = list(loader(folder, size=2, rank=1, batch=8).epoch(3))
    resumed = list(loader(folder, size=2, rank=1, batch=8).epoch(3, 4))
    assert same(whole[4:], resumed)


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


def test_batches_of_an_image_folder_are_those_of_its_shards(
    photographs: Path, tmp_path: Path
) -> None:
    packed = samples_of(photographs)
    for images, labels in packed.values():
        pairs = sorted(zip(labels, images, strict=True))
        images[:], labels[:] = [i for _, i in pairs], [n for n, _ in pairs]
    folder = image_folder(tmp_path / "folder", packed, classes=2)
    shards = converted(photographs, tmp_path / "shards", "recordio", packed)
    document = json.loads((shards / "dataset.json").read_text())
    document["image"] |= {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    (shards / "dataset.json").write_text(json.dumps(document))
    for training in (True, False):
        one = list(loader(folder, training=training, batch=3).epoch(0))
        assert same(one, list(loader(shards, training=training, batch=3).epoch(0)))


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
    with pytest.raises(DataError, match="without samples"):
        open_dataset(tmp_path).records("train")


@pytest.fixture
def broken(tiny: Path, tmp_path: Path):
    """Return a function that makes a fresh copy of `tiny` in a format, and its first shard."""

    def run(kind: str) -> tuple[Path, Path]:
        folder = converted(tiny, tmp_path / kind, kind, samples_of(tiny))
        return folder, folder / f"train-00000{BROKEN[kind]}"

    return run


@pytest.mark.parametrize("kind", WRITERS)
def test_a_truncated_and_a_missing_shard_are_named(broken, kind: str) -> None:
    folder, shard = broken(kind)
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(DataError, match=rf"{shard.name} has \d+ bytes, dataset.json says \d+"):
        open_dataset(folder).records("train")
    shard.unlink()
    with pytest.raises(DataError, match=f"{shard.name} does not exist"):
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
        (lambda text: text.partition("\n")[2], "39 samples are listed, dataset.json says 40"),
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
    with pytest.raises(DataError, match=r"train-00000\.h5: 'offsets' does not fit"):
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
    with pytest.raises(DataError, match="must be contiguous bytes"):
        open_dataset(folder).records("train")


def test_an_entry_without_its_size_is_named(broken) -> None:
    folder, _ = broken("hdf5")
    document = json.loads((folder / "dataset.json").read_text())
    del document["splits"]["train"]["shards"][0]["bytes"]
    (folder / "dataset.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=r"dataset\.json: missing or malformed entry \('bytes'\)"):
        open_dataset(folder).records("train")


@pytest.mark.parametrize("kind", ["webdataset", "tfrecord", "recordio"])
def test_an_index_with_another_checksum_than_listed_is_named(tmp_path: Path, kind: str) -> None:
    """Two samples in the other order: each is in the shard, and has the class of the other."""
    folder = tmp_path / "data"
    shutil.copytree(Path(__file__).with_name("data") / "packed" / kind, folder)
    assert len(open_dataset(folder).records("train")) == 6
    path = folder / "train-00000.idx"
    path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    with pytest.raises(DataError, match=r"index .*train-00000\.idx has another checksum than"):
        open_dataset(folder).records("train")
