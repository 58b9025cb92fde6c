"""Test the batches of a training or evaluation: samples, seed, image size, preprocessing.

The settings of the app and the data set determine them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from resnet_imagenet import data
from resnet_imagenet.data import Loader
from resnet_imagenet.image_size_schedule import image_sizes
from resnet_imagenet.inputs import open_inputs
from resnet_imagenet.pipelines import PipelineOptions
from resnet_imagenet.settings import TrainSettings
from trainkit.data.dataset import open_dataset
from trainkit.ranks import Ranks
from trainkit.torch.strategy import TorchStrategy

ASKED: dict[str, Any] = {
    "batch_size_per_rank": 4, "seed": 9, "image_size": image_sizes("32"), "threads": 1,
}


def first(batches: Any, epoch: int = 0) -> list[torch.Tensor]:
    return list(next(batches.epoch(epoch)))


def equal(one: list[torch.Tensor], two: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def by_hand(folder: Path, split: str, *, seed: int = 9, **way: Any) -> Loader:
    dataset = open_dataset(folder)
    to = data.preprocessing(dataset, 32)
    return Loader(
        dataset.records(split), to, PipelineOptions(**way), batch_per_rank=4, seed=seed,
        strategy=TorchStrategy(),
    )


@pytest.mark.parametrize("scale", [True, False])
def test_training_and_evaluation_are_those_of_the_settings(
    photographs: Path, scale: bool
) -> None:
    asked = TrainSettings(data=photographs, scale_augmentation=scale, **ASKED)
    found = open_inputs(asked, TorchStrategy())
    wanted = by_hand(photographs, "train", training=True, scale_augmentation=scale)
    assert equal(first(found.train), first(wanted))
    assert equal(first(found.evaluation), first(by_hand(photographs, "val", training=False)))
    assert (found.train.samples, found.evaluation.samples, found.train.steps) == (8, 4, 2)
    other = open_inputs(dataclasses.replace(asked, seed=10), TorchStrategy())
    assert not equal(first(found.train), first(other.train))


def test_the_evaluation_has_the_last_size_and_training_that_of_its_epoch(
    photographs: Path,
) -> None:
    sizes = image_sizes("16:0,32:1")
    asked = TrainSettings(data=photographs, **ASKED | {"image_size": sizes})
    found = open_inputs(asked, TorchStrategy())
    assert first(found.evaluation)[0].shape == (4, 3, 32, 32)
    assert [first(found.train, epoch)[0].shape[2] for epoch in (0, 1, 2)] == [16, 32, 32]


def test_a_checkpoint_is_told_how_to_prepare_images(photographs: Path) -> None:
    asked = TrainSettings(data=photographs, precision="fp16", stem="small", **ASKED)
    about = open_inputs(asked, TorchStrategy()).describe(asked)
    assert about == {
        "model": "resnet50", "stem": "small", "precision": "fp16",
        "classes": ["class 0", "class 1"], "preprocessing": {
            "channels": 3, "size": 32, "mean": (0.5,) * 3, "std": (0.25,) * 3, "native": None,
        },
    }


@pytest.mark.parametrize(("model", "ranks", "steps", "samples", "shape", "classes"), [
    ("resnet20", 1, 781, 49_984, (64, 3, 32, 32), 10),
    ("resnet50", 2, 10_009, 1_281_152, (64, 3, 8, 8), 1000),
])
def test_synthetic_images_imitate_the_data_sets_of_the_papers(
    model: str, ranks: int, steps: int, samples: int, shape: tuple[int, ...], classes: int
) -> None:
    """Synthetic data have the sizes of CIFAR-10 (50,000 images) and ImageNet (1,281,167).

    Images beyond the last whole batch of all ranks are left out.
    """
    size = image_sizes("8") if model == "resnet50" else None
    asked = TrainSettings(model=model, synthetic=True, batch_size_per_rank=64, image_size=size)
    found = open_inputs(asked, TorchStrategy(Ranks(rank=0, size=ranks)))
    assert (found.train.steps, found.train.samples) == (steps, samples)
    assert len(found.classes) == classes
    images, labels = first(found.train)
    assert images.shape == shape
    assert images.std() == pytest.approx(1.0, abs=0.05)
    assert len(labels) == 64
    assert 0 <= int(labels.min()) < int(labels.max()) < classes
    assert len(np.unique(labels)) > 5
    assert sum(1 for _ in zip(range(5), found.train.epoch(0, steps - 2), strict=False)) == 2


def test_a_training_reads_the_staged_copy(tiny: Path, tmp_path: Path, train) -> None:
    node = tmp_path / "node"
    assert train(tiny, tmp_path / "run", "--max-steps", "2", "--stage", str(node)) == 0
    assert len(list(node.rglob("train-*.tar"))) == 3
