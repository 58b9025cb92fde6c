"""Measure how fast the input pipeline of resnet-imagenet makes batches, without a training.

The app's command `train --data` uses the same pipeline.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

from resnet_imagenet.inputs import open_inputs
from resnet_imagenet.settings import TrainSettings
from sidebyside.timing import images_per_second, print_rate
from trainkit.torch.strategy import TorchStrategy


def sizes(settings: TrainSettings) -> Iterator[int]:
    """Yield the number of images of each training batch, epoch after epoch."""
    train = open_inputs(settings, TorchStrategy()).train
    for epoch in itertools.count():
        for images, _ in train.epoch(epoch):
            yield len(images)


def main() -> None:
    """Print the rate of the pipeline in images per second."""
    parser = argparse.ArgumentParser(description="Print the img/s of the app's input pipeline.")
    parser.add_argument("data", type=Path, help="packed data set")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    settings = TrainSettings(
        data=options.data, out=options.data, batch_size_per_rank=options.batch,
        threads=options.threads,
    )
    print_rate(images_per_second(sizes(settings), warmup=8, seconds=options.seconds))


if __name__ == "__main__":
    main()
