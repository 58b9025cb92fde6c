"""The stock input pipeline: DataLoader workers, Pillow, torchvision's augmentation for training.

The steps equal those of torchvision's reference scripts: RandomResizedCrop(224) (bilinear),
horizontal flip, conversion to a float tensor, normalisation, default collation. They are written
with Pillow and torch, to avoid a dependency on torchvision.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from sidebyside.timing import images_per_second, print_rate

SIZE = 224
MEAN = torch.tensor([0.485, 0.456, 0.406])[:, None, None]
STD = torch.tensor([0.229, 0.224, 0.225])[:, None, None]


def window(width: int, height: int) -> tuple[int, int, int, int]:
    """Return a random crop box in pixels: left, upper, right, lower.

    Its area and aspect ratio are drawn as in torchvision's RandomResizedCrop.
    """
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)  # noqa: S311
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))  # noqa: S311
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, upper = random.randint(0, width - w), random.randint(0, height - h)  # noqa: S311
            return left, upper, left + w, upper + h
    side = min(width, height)
    left, upper = (width - side) // 2, (height - side) // 2
    return left, upper, left + side, upper + side


class Folder(Dataset[tuple[Tensor, int]]):
    """JPEG files in one folder per class, as training samples."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*/*.jpg"))
        self.classes = sorted({path.parent.name for path in self.paths})

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Return the normalised image, (3, 224, 224), and its class number."""
        path = self.paths[index]
        with Image.open(path) as image:
            rgb = image.convert("RGB")
        rgb = rgb.crop(window(*rgb.size)).resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:  # noqa: S311
            rgb = rgb.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(rgb)).permute(2, 0, 1).contiguous()
        return pixels.float().div(255).sub_(MEAN).div_(STD), self.classes.index(path.parent.name)


def sizes(loader: DataLoader[tuple[Tensor, int]]) -> Iterator[int]:
    """Load batches epoch after epoch; yield the number of images of each loaded batch."""
    while True:
        for images, _ in loader:
            yield len(images)


def main() -> None:
    """Print the rate of the loader in images per second."""
    parser = argparse.ArgumentParser(description="Print the img/s of DataLoader and Pillow.")
    parser.add_argument("folder", type=Path, help="JPEG files in one folder per class")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    loader = DataLoader(
        Folder(options.folder), options.batch, shuffle=True, drop_last=True,
        num_workers=options.workers, persistent_workers=True,
    )
    warmup = 3 * options.workers  # 2 per worker are prepared ahead
    print_rate(images_per_second(sizes(loader), warmup=warmup, seconds=options.seconds))


if __name__ == "__main__":
    main()
