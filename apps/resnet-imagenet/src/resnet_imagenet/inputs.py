"""Open the batches of a training, from packed or synthetic data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch

from resnet_imagenet import data
from resnet_imagenet.data import Batches
from resnet_imagenet.pipelines import PipelineOptions, Preprocessing
from resnet_imagenet.settings import TrainSettings
from trainkit.data.bad import BadRecords
from trainkit.data.dataset import open_dataset
from trainkit.data.staging import stage
from trainkit.torch.strategy import TorchStrategy

# Shapes for --synthetic: those of CIFAR-10 for the small networks, those of ImageNet otherwise.
SMALL = {"size": 32, "classes": 10, "train": 50_000, "evaluation": 10_000}
LARGE = {"size": 224, "classes": 1_000, "train": 1_281_167, "evaluation": 50_000}


@dataclass(frozen=True)
class Inputs:
    """The batches of a training.

    Attributes:
        name: fingerprint of the data set, or "synthetic".
        classes: names of the classes.
        to: preprocessing of the images.
        train: batches to train on.
        evaluation: batches to evaluate on.
        bad: records that could not be decoded; `bad.tell` prints those that were added since its
            last call.
    """

    name: str
    classes: tuple[str, ...]
    to: Preprocessing
    train: Batches
    evaluation: Batches
    bad: BadRecords

    def describe(self, settings: TrainSettings) -> dict[str, Any]:
        """Return the entries of a checkpoint from which other commands restore the network."""
        return {
            "model": settings.model,
            "stem": settings.stem,
            "precision": settings.precision,
            "classes": list(self.classes),
            "preprocessing": dataclasses.asdict(self.to),
        }


def open_inputs(settings: TrainSettings, strategy: TorchStrategy) -> Inputs:
    """Return the batches that `settings` specify.

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
            PipelineOptions(
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
    """Return where DALI decodes: "gpu" on an NVIDIA GPU, "cpu" on a CPU or an AMD GPU."""
    return "gpu" if strategy.device.type == "cuda" and torch.version.hip is None else "cpu"


def synthetic_inputs(settings: TrainSettings, strategy: TorchStrategy) -> Inputs:
    """Return random batches for `--synthetic`, in the usual shape of the model's data set."""
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
