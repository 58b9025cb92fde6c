"""Open the clips of a training, packed or synthetic, and derive the sizes of the networks."""

from __future__ import annotations

from dataclasses import dataclass

from futuregan import clips
from futuregan.clips import Loader, Source, Synthetic
from futuregan.model import Shape
from futuregan.settings import TrainSettings
from trainkit.torch.strategy import TorchStrategy

SYNTHETIC = 657  # number of clips, as in the training split of KITTI tracking


@dataclass(frozen=True)
class Inputs:
    """The batches of a training.

    Attributes:
        name: fingerprint of the data set, or "synthetic".
        shape: sizes of the networks.
        train: batches to train on.
        evaluation: batches to evaluate on.
    """

    name: str
    shape: Shape
    train: Loader
    evaluation: Loader


def open_inputs(settings: TrainSettings, strategy: TorchStrategy) -> Inputs:
    """Return the batches that `settings` specify.

    Raises:
        DataError: the data set is missing or damaged, or has too few clips.
    """
    size, length = int(settings.size), settings.past + settings.future
    name, channels, split = ("synthetic", 3, "")
    if settings.data is not None:
        name, channels, split = clips.describe_data(settings.data)

    def source(which: str) -> Source:
        if settings.data is None:
            return Synthetic(size, channels, length, SYNTHETIC, settings.seed)
        return clips.open_clips(
            settings.data, which, settings.past, settings.future, size, channels,
            # Evaluation clips do not overlap, so that each frame counts once.
            settings.stride if which == "train" else None, settings.every,
            settings.frame_cache * 1_000_000,
        )

    def loader(which: str, training: bool) -> Loader:
        return Loader(source(which), training=training, seed=settings.seed, strategy=strategy,
                      threads=settings.threads)

    shape = Shape(
        size, settings.past, settings.future, channels, settings.width, settings.residual,
        int(settings.base_size), settings.skip,
    )
    return Inputs(name, shape, loader("train", True), loader(split, False))
