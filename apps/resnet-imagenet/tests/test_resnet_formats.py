"""Batches from every packed format are the same: each sample once, for any number of ranks."""

import json
from pathlib import Path

import pytest
import torch
from written_shards import FORMATS, WRITERS, Convert, converted, image_folder, samples_of

from resnet_imagenet import data
from resnet_imagenet.data import Loader
from resnet_imagenet.pipelines import PipelineOptions
from trainkit.data.dataset import open_dataset
from trainkit.ranks import Ranks
from trainkit.torch.strategy import TorchStrategy


def loader(folder: Path, *, training: bool = True, rank: int = 0, size: int = 1, batch: int = 16):
    dataset = open_dataset(folder)
    return Loader(
        dataset.records("train" if training else dataset.evaluation_split()),
        data.preprocessing(dataset, None),
        PipelineOptions(training, threads=2),
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


def numbers(images: torch.Tensor) -> list[int]:
    """Return the sample number of each image of `numbered`: half of its uniform brightness."""
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


@pytest.mark.parametrize("kind", FORMATS)
def test_going_on_in_the_middle_gives_the_same_batches(
    tiny: Path, convert: Convert, kind: str
) -> None:
    folder = convert(tiny, kind)
    whole = list(loader(folder, size=2, rank=1, batch=8).epoch(3))
    resumed = list(loader(folder, size=2, rank=1, batch=8).epoch(3, 4))
    assert same(whole[4:], resumed)


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
