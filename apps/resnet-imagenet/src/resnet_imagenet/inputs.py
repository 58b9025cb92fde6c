"""The batches of a training, real or synthetic, and what the network must know of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from resnet_imagenet import data
from resnet_imagenet.data import Batches
from resnet_imagenet.pipelines import Preprocessing, Way
from resnet_imagenet.settings import TrainSettings
from trainkit.data.bad import BadRecords
from trainkit.data.dataset import open_dataset
from trainkit.data.staging import stage
from trainkit.torch.strategy import TorchStrategy

# Shapes that --synthetic imitates: CIFAR-10 for the small networks, ImageNet for the others.
SMALL = {"size": 32, "classes": 10, "train": 50_000, "evaluation": 10_000}
LARGE = {"size": 224, "classes": 1_000, "train": 1_281_167, "evaluation": 50_000}


@dataclass(frozen=True)
class Inputs:
    """Training and evaluation batches of one data set, whose `name` tells its content too.

    `bad` has the records that could not be decoded, and calls `bad.tell` for each new one.
    """

    name: str
    classes: tuple[str, ...]
    to: Preprocessing
    train: Batches
    evaluation: Batches
    bad: BadRecords

    def describe(self, settings: TrainSettings) -> dict[str, Any]:
        """Return what a checkpoint keeps, so that `evaluate` and `predict` need no settings."""
        return {
            "model": settings.model,
            "stem": settings.stem,
            "precision": settings.precision,
            "classes": list(self.classes),
            "preprocessing": dataclasses.asdict(self.to),
        }


def open_inputs(settings: TrainSettings, strategy: TorchStrategy) -> Inputs:
    """Return the batches that `settings` ask for.

    Raises:
        DataError: the data set is missing or damaged.
    """
    if settings.data is None:
        return synthetic_inputs(settings, strategy)
    folder = settings.data
    if settings.stage is not None:
        with strategy.unhurried():
            folder = stage(folder, settings.stage, local_rank=strategy.ranks.local_rank)
    dataset = open_dataset(folder)
    sizes, bad = settings.image_size, BadRecords(settings.max_bad_records)
    to = data.preprocessing(dataset, sizes.last if sizes else None)

    def loader(split: str, training: bool) -> data.Loader:
        return data.Loader(
            dataset.records(split),
            to,
            Way(
                training, settings.scale_augmentation, device=decoding(strategy),
                device_id=strategy.device.index or 0, threads=settings.threads,
            ),
            batch_per_rank=settings.batch_size_per_rank,
            seed=settings.seed,
            strategy=strategy,
            sizes=sizes if training else None,
            bad=bad,
        )

    train = loader("train", training=True)
    evaluation = loader(dataset.evaluation_split(), training=False)
    return Inputs(dataset.fingerprint(), dataset.classes, to, train, evaluation, bad)


def decoding(strategy: TorchStrategy) -> str:
    """Return where DALI decodes: "gpu" beside an NVIDIA GPU, for there is no DALI for AMD's."""
    return "gpu" if strategy.device.type == "cuda" and torch.version.hip is None else "cpu"


def synthetic_inputs(settings: TrainSettings, strategy: TorchStrategy) -> Inputs:
    """Return random batches of the shape that the model is known for."""
    shape = SMALL if settings.model in ("resnet20", "resnet32") else LARGE
    size = settings.image_size.last if settings.image_size else shape["size"]
    to = Preprocessing(3, size, (0.5,) * 3, (0.25,) * 3, None)

    def batches(samples: int) -> data.Synthetic:
        return data.Synthetic(
            to,
            classes=shape["classes"],
            batch=settings.batch_size_per_rank,
            samples=samples,
            seed=settings.seed,
            strategy=strategy,
        )

    classes = tuple(f"class {number}" for number in range(shape["classes"]))
    train, evaluation = batches(shape["train"]), batches(shape["evaluation"])
    return Inputs("synthetic", classes, to, train, evaluation, BadRecords())
