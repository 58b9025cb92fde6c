"""Pack small data sets as WebDataset, and provide two of them as fixtures."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

Pixels = np.ndarray


def png(pixels: Pixels) -> bytes:
    """Return `pixels` (H, W) or (H, W, 3) of uint8 as a PNG file: RFC 2083, no filters."""
    height, width = pixels.shape[:2]
    colour = 0 if pixels.ndim == 2 else 2
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + body))
        return struct.pack(">I", len(body)) + kind + body + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    body = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def write_shard(folder: Path, name: str, images: Sequence[bytes], labels, first: int, ending: str):
    """Write one tar file with its index; return its entry of dataset.json."""
    lines = []
    with tarfile.open(folder / f"{name}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
        for number, (image, label) in enumerate(zip(images, labels, strict=True), first):
            words = []
            for kind, content in ((ending, image), ("cls", str(label).encode())):
                info = tarfile.TarInfo(f"{number:08d}.{kind}")
                info.size = len(content)
                words += [kind, str(tar.offset + 512), str(len(content)), info.name]
                tar.addfile(info, io.BytesIO(content))
            lines.append(" ".join(words))
    (folder / f"{name}.idx").write_text("\n".join([f"v1.2 {len(lines)}", *lines]) + "\n")
    content = (folder / f"{name}.tar").read_bytes()
    return {
        "file": f"{name}.tar",
        "index": f"{name}.idx",
        "samples": len(lines),
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def pack(folder: Path, splits, *, classes: int, channels: int, size, ending: str = "png") -> Path:
    """Write a data set to `folder`, with 40 samples per shard; return the folder.

    `splits` is a dict: name of a split -> (contents of image files, class numbers). `size` is the
    height and width in pixels, or None; `ending` is the file name extension of the images.
    """
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "schema": 1,
        "name": folder.name,
        "format": "webdataset",
        "classes": [f"class {n}" for n in range(classes)],
        "image": {
            "channels": channels,
            "height": size,
            "width": size,
            "encoding": ending,
            "mean": [0.5] * channels,
            "std": [0.25] * channels,
        },
        "splits": {},
    }
    for split, (images, labels) in splits.items():
        shards = [
            write_shard(
                folder,
                f"{split}-{n // 40:05d}",
                images[n : n + 40],
                labels[n : n + 40],
                n,
                ending,
            )
            for n in range(0, len(images), 40)
        ]
        document["splits"][split] = {"samples": len(images), "shards": shards}
    (folder / "dataset.json").write_text(json.dumps(document))
    return folder


def stripes(count: int, size: int, seed: int) -> tuple[list[Pixels], list[int]]:
    """Return noisy images with horizontal or vertical stripes, and their classes, 0 or 1."""
    generator = np.random.default_rng(seed)
    labels = [int(x) for x in generator.integers(0, 2, count)]
    pattern = (np.indices((size, size)) // 2 % 2 * 160).astype(np.uint8)
    noise = generator.integers(0, 90, (count, size, size), np.uint8)
    return [pattern[label] + noise[n] for n, label in enumerate(labels)], labels


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a data set with 100 training images and 30 test images.

    The images are grey, with 12x12 pixels and two classes. Tests must not change the data set.
    """
    splits = {}
    for split, count, seed in (("train", 100, 1), ("test", 30, 2)):
        images, labels = stripes(count, 12, seed)
        splits[split] = ([png(image) for image in images], labels)
    folder = tmp_path_factory.mktemp("data") / "tiny"
    return pack(folder, splits, classes=2, channels=1, size=12)


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of grey images: 100 for training, and 30 for validation.

    Each pixel of image n has the value 2 n.
    """
    splits = {}
    for split, count in (("train", 100), ("test", 30)):
        images = [png(np.full((12, 12), 2 * n, np.uint8)) for n in range(count)]
        splits[split] = (images, [n % 2 for n in range(count)])
    folder = tmp_path_factory.mktemp("data") / "numbered"
    return pack(folder, splits, classes=2, channels=1, size=12)
