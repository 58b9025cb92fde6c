"""Write data sets of images with any number of findings, without the packer of the tool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from packed_images import png
from written_kinds import tfrecord

CLASSES = ("left", "right")
Labelled = tuple[tuple[int, ...], bytes]
"""The findings of an image, and the image as a PNG file."""


def image(seed: int, side: int = 32) -> Labelled:
    """Return noise with a bright square on the left for finding 0, on the right for finding 1."""
    draw = np.random.default_rng(seed)
    pixels = draw.integers(0, 40, (side, side)).astype(np.uint8)
    found = tuple(at for at in range(2) if draw.random() < 0.5)
    for at in found:
        top, left = draw.integers(0, side // 2), at * side // 2 + draw.integers(0, side // 4)
        pixels[top : top + side // 4, left : left + side // 4] = 220
    return found, png(pixels)


def pack(
    folder: Path, splits: Mapping[str, Sequence[Labelled]], labels: str = "multi",
    channels: int = 1, classes: Sequence[str] = CLASSES,
) -> Path:
    """Write labelled images as a data set of TFRecord shards, and return its folder."""
    folder.mkdir()
    entries = {}
    for split, images in splits.items():
        stem = folder / f"{split}-00000"
        samples = [(found, [content]) for found, content in images]
        content = tfrecord(stem, labels, "image", samples).read_bytes()
        entries[split] = {"samples": len(samples), "shards": [{
            "file": f"{stem.name}.tfrecord", "index": f"{stem.name}.idx", "samples": len(samples),
            "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
        }]}
    (folder / "dataset.json").write_text(json.dumps({
        "schema": 1, "name": folder.name, "format": "tfrecord", "labels": labels,
        "sample": "image", "classes": list(classes), "splits": entries,
        "image": {"channels": channels, "height": None, "width": None, "encoding": "png",
                  "mean": [0.5] * channels, "std": [0.25] * channels},
    }))
    return folder
