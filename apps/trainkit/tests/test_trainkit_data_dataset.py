"""Tests of opening a packed data set: each error names the file."""

import json
import shutil
from pathlib import Path

import pytest

from trainkit.data.dataset import open_dataset
from trainkit.exits import DataError
from trainkit.testing.refusals import refused


@pytest.fixture
def copy(tiny: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny, tmp_path / "copy"))


def edit(folder: Path, change) -> None:
    document = json.loads((folder / "dataset.json").read_text())
    change(document)
    (folder / "dataset.json").write_text(json.dumps(document))


def test_what_is_there_is_read(tiny: Path) -> None:
    dataset = open_dataset(tiny)
    records = dataset.records("train")
    assert len(records) == 100
    assert dataset.evaluation_split() == "test"
    assert records.encoded(57)[:4].tobytes() == b"\x89PNG"
    assert records.label(57) in (0, 1)
    assert records.describe(57).startswith(f"{tiny / 'train-00001.tar'}: record 00000057.png")


def test_sizes_and_statistics_are_those_of_the_description(copy: Path) -> None:
    def colours(document: dict) -> None:
        document["image"] |= {
            "channels": 3, "height": 5, "width": 7, "mean": [0.1, 0.2, 0.3], "std": [0.4, 0.5, 0.6],
        }

    edit(copy, colours)
    found = open_dataset(copy)
    assert (found.channels, found.height, found.width) == (3, 5, 7)
    assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))


def test_a_folder_of_images_is_normalized_as_imagenet_is(tmp_path: Path) -> None:
    """Mean and deviation of red, green and blue are the values in torchvision's documentation."""
    (tmp_path / "train/a").mkdir(parents=True)
    found = open_dataset(tmp_path)
    assert (found.mean, found.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (found.channels, found.height, found.width) == (3, None, None)


def test_the_validation_split_is_evaluated_on_where_there_is_one(copy: Path) -> None:
    def both(document: dict) -> None:
        document["splits"]["val"] = document["splits"]["train"]

    edit(copy, both)
    assert open_dataset(copy).evaluation_split() == "val"


def test_other_bytes_are_other_data(copy: Path, tiny: Path) -> None:
    def change(document: dict) -> None:
        document["splits"]["train"]["shards"][1]["sha256"] = "0" * 64

    edit(copy, change)
    first, second = open_dataset(tiny).fingerprint(), open_dataset(copy).fingerprint()
    assert first != second
    assert first.split()[0] == second.split()[0] == "tiny"


def test_records_are_numbered_through_the_shards(numbered: Path) -> None:
    """Sample 40 is the first one of the second shard; the shards have 40, 40 and 20 samples.

    In the data set `numbered`, the class of a sample is its number modulo 2.
    """
    records = open_dataset(numbered).records("train")
    assert [records.label(n) for n in (0, 39, 40, 41, 79, 80, 99)] == [0, 1, 0, 1, 1, 0, 1]
    places = [records.describe(n).split("train-")[1].split(" ")[0] for n in (39, 40, 79, 80)]
    assert places == ["00000.tar:", "00001.tar:", "00001.tar:", "00002.tar:"]


def test_a_missing_folder_says_how_to_get_one(tmp_path: Path) -> None:
    with refused(DataError, "data-missing", tmp_path / "dataset.json", "trimaran data"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"schema": 1, "format": "webdataset"}'])
def test_a_malformed_description_is_named(copy: Path, text: str) -> None:
    (copy / "dataset.json").write_text(text)
    with pytest.raises(DataError, match=r"dataset\.json"):
        open_dataset(copy)


def test_other_schemas_and_channels_are_refused(copy: Path) -> None:
    edit(copy, lambda d: d.update(schema=2))
    with refused(DataError, "data-invalid", "'schema'", " 1,"):
        open_dataset(copy)
    edit(copy, lambda d: (d.update(schema=1), d["image"].update(channels=4)))
    with refused(DataError, "data-invalid", "'image.channels'", "1, 3"):
        open_dataset(copy)


def test_an_unknown_split_lists_the_known(copy: Path) -> None:
    with refused(DataError, "split-missing", "'val'", "test, train"):
        open_dataset(copy).records("val")


@pytest.mark.parametrize("name", ["train-00001.tar", "train-00001.idx"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with refused(DataError, "data-damaged", name, "exist"):
        open_dataset(copy).records("train")


def test_a_truncated_shard_is_named_with_both_sizes(copy: Path) -> None:
    shard = copy / "train-00002.tar"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-1024])
    with refused(DataError, "data-damaged", shard, f" {size - 1024} ", f" {size}"):
        open_dataset(copy).records("train")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("v1.2 40", "v1.1 40"), "expected v1.2 with 40"),
        (lambda text: "\n".join(text.splitlines()[:-1]), "40 announced and 39 listed"),
        (lambda text: text.replace("png 512 ", "png many "), "malformed"),
        (lambda text: text.replace("cls", "txt"), "malformed"),
        (lambda text: text.replace("png 512 ", "png 512000000 "), "beyond the end"),
        (lambda text: text.replace("png 512 ", "png 1536 "), "does not belong to"),
        (lambda text: "", "malformed"),
    ],
)
def test_a_wrong_index_is_named(copy: Path, change, said: str) -> None:
    index = copy / "train-00000.idx"
    index.write_text(change(index.read_text()))
    with pytest.raises(DataError, match=f"train-00000.idx.*{said}"):
        open_dataset(copy).records("train")


def test_a_split_without_samples_is_refused(copy: Path) -> None:
    edit(copy, lambda d: d["splits"]["train"].update(shards=[]))
    with refused(DataError, "split-empty", "dataset.json"):
        open_dataset(copy).records("train")
