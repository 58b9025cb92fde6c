"""Write sequences of frames as packed data sets, without the packing tool."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from packed_images import png
from written_kinds import webdataset

Frames = NDArray[np.uint8]


def moving(count: int, size: int, seed: int) -> Frames:
    """Return `count` grey frames (count, size, size) of a bright square that moves and bounces."""
    draw = np.random.default_rng(seed)
    side = size // 4
    place, speed = draw.integers(0, size - side, 2), draw.choice([-1, 1], 2)
    frames = np.full((count, size, size), 20, np.uint8)
    for frame in frames:
        y, x = place
        frame[y : y + side, x : x + side] = 220
        speed = np.where((place + speed < 0) | (place + speed > size - side), -speed, speed)
        place = place + speed
    return frames


def coloured(count: int, height: int, width: int, seed: int) -> Frames:
    """Return random frames (count, height, width, 3), which are all different and not symmetric."""
    draw = np.random.default_rng(seed)
    patches = draw.integers(0, 256, (count, -(-height // 4), -(-width // 4), 3), np.uint8)
    return patches.repeat(4, 1).repeat(4, 2)[:, :height, :width]


def pack(folder: Path, splits: Mapping[str, Sequence[Sequence[Frames | bytes]]]) -> Path:
    """Write a packed data set of sequences, and return its folder.

    A frame is the content of a PNG file or an array: all grey, (H, W), or all coloured, (H, W, 3).
    """
    folder.mkdir()
    grey = not any(np.ndim(frame) == 3 for sequences in splits.values() for frames in sequences
                   for frame in frames)
    channels = 1 if grey else 3
    entries = {}
    for split, sequences in splits.items():
        stem = folder / f"{split}-00000"
        samples = [
            ((), [frame if isinstance(frame, bytes) else png(frame) for frame in frames])
            for frames in sequences
        ]
        content = webdataset(stem, "none", "sequence", samples).read_bytes()
        entries[split] = {"samples": len(samples), "shards": [{
            "file": f"{stem.name}.tar", "index": f"{stem.name}.idx", "samples": len(samples),
            "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(),
        }]}
    (folder / "dataset.json").write_text(json.dumps({
        "schema": 1, "name": folder.name, "format": "webdataset", "labels": "none",
        "sample": "sequence", "classes": [], "splits": entries,
        "image": {"channels": channels, "height": None, "width": None, "encoding": "png",
                  "mean": [0.5] * channels, "std": [0.25] * channels},
    }))
    return folder
