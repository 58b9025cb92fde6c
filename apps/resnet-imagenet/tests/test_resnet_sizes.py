"""Test progressive resizing: the option, and images whose size changes between epochs."""

import argparse
from pathlib import Path

import pytest
import torch

from resnet_imagenet import data
from resnet_imagenet.data import Loader
from resnet_imagenet.image_size_schedule import ImageSizes, image_sizes
from resnet_imagenet.pipelines import PipelineOptions
from trainkit.data.dataset import open_dataset
from trainkit.torch.strategy import TorchStrategy


def test_one_size_is_for_all_epochs() -> None:
    sizes = image_sizes("176")
    assert [sizes.at(epoch) for epoch in (0, 89)] == [176, 176]
    assert sizes.last == 176
    assert str(sizes) == "176"


def test_sizes_change_at_their_epochs() -> None:
    sizes = image_sizes("128:0,160:12,224:24")
    assert [sizes.at(epoch) for epoch in (0, 11, 12, 23, 24, 99)] == [128, 128, 160, 160, 224, 224]
    assert sizes.last == 224
    assert str(sizes) == "128:0,160:12,224:24"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "must be SIZE"),
        ("big", "must be SIZE"),
        ("128,160", "must be SIZE"),
        ("128:0,", "must be SIZE"),
        ("128:0 160:1", "must be SIZE"),
        ("-128:0", "must be SIZE"),
        ("128:0.5", "must be SIZE"),
        ("128:1", "begin at 0"),
        ("128:0,160:0", "and rise"),
        ("128:0,160:9,224:5", "and rise"),
        ("4", "at least 8"),
        ("128:0,7:3", "at least 8"),
        ("\N{SUPERSCRIPT TWO}", "must be SIZE"),
    ],
)
def test_wrong_sizes_are_refused(text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=said):
        image_sizes(text)


def loader(folder: Path, sizes: ImageSizes | None = None, *, scale_augmentation=True) -> Loader:
    dataset = open_dataset(folder)
    return Loader(
        dataset.records("train"),
        data.preprocessing(dataset, sizes and sizes.last),
        PipelineOptions(training=True, scale_augmentation=scale_augmentation),
        batch_per_rank=4,
        seed=1,
        strategy=TorchStrategy(),
        sizes=sizes,
    )


def test_batches_grow_between_epochs_and_go_on_after_a_resume(photographs: Path) -> None:
    sizes = image_sizes("32:0,64:2")
    batches = loader(photographs, sizes)
    epochs = [list(batches.epoch(epoch)) for epoch in range(4)]
    assert [images.shape[2:] for epoch in epochs for images, _ in epoch] == (
        [(32, 32)] * 4 + [(64, 64)] * 4
    )
    for epoch in (1, 2, 3):
        again = list(loader(photographs, sizes).epoch(epoch, 1))
        assert torch.equal(again[0][0], epochs[epoch][1][0])
    fixed = list(loader(photographs, image_sizes("64")).epoch(2))
    assert torch.equal(fixed[0][0], epochs[2][0][0])


def test_without_scale_augmentation_all_windows_show_the_same_scale(photographs: Path) -> None:
    """Each window spans 7/8 of the green values 0..255, because it has 7/8 of the rows.

    The green of the picture grows linearly with the row.
    """
    images = next(loader(photographs, image_sizes("64"), scale_augmentation=False).epoch(0))[0]
    green = (images[:, 1] * 0.25 + 0.5) * 255
    span = (green[:, -1] - green[:, 0]).mean(dim=1)
    assert span.numpy() == pytest.approx(255 * 7 / 8, abs=6)
    varied = next(loader(photographs, image_sizes("64")).epoch(0))[0]
    green = (varied[:, 1] * 0.25 + 0.5) * 255
    assert (green[:, -1] - green[:, 0]).mean(dim=1).std() > 10
