"""Small packed data sets made on the spot, and the app run in this process or in its own."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from resnet_imagenet.__main__ import main

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
    """Pack `splits` {name: (image files, labels)} as the tool does, 40 samples a shard."""
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
    """Return noisy images of two classes that a network can tell: horizontal, vertical stripes."""
    generator = np.random.default_rng(seed)
    labels = [int(x) for x in generator.integers(0, 2, count)]
    pattern = (np.indices((size, size)) // 2 % 2 * 160).astype(np.uint8)
    noise = generator.integers(0, 90, (count, size, size), np.uint8)
    return [pattern[label] + noise[n] for n, label in enumerate(labels)], labels


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of 100 + 30 grey 12x12 images of two classes. Do not change it."""
    splits = {}
    for split, count, seed in (("train", 100, 1), ("test", 30, 2)):
        images, labels = stripes(count, 12, seed)
        splits[split] = ([png(image) for image in images], labels)
    folder = tmp_path_factory.mktemp("data") / "tiny"
    return pack(folder, splits, classes=2, channels=1, size=12)


@pytest.fixture(scope="session")
def numbered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return 100 + 30 flat grey images whose brightness is 2 x their number."""
    splits = {}
    for split, count in (("train", 100), ("test", 30)):
        images = [png(np.full((12, 12), 2 * n, np.uint8)) for n in range(count)]
        splits[split] = (images, [n % 2 for n in range(count)])
    folder = tmp_path_factory.mktemp("data") / "numbered"
    return pack(folder, splits, classes=2, channels=1, size=12)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of 8 + 4 JPEG files of no common size (all the same 160x120 picture)."""
    jpeg = (Path(__file__).parent / "data" / "gradient-160x120.jpg").read_bytes()
    splits = {"train": ([jpeg] * 8, [0, 1] * 4), "val": ([jpeg] * 4, [0, 1] * 2)}
    folder = tmp_path_factory.mktemp("data") / "photographs"
    return pack(folder, splits, classes=2, channels=3, size=None, ending="jpg")


OPTIONS = (
    "--model resnet20 --epochs 4 --batch-size-per-rank 16 --base-lr 0.1 --warmup-epochs 1 "
    "--momentum 0.9 --log-every 5 --checkpoint-every 3 --threads 1"
)
SMALL_RUN = OPTIONS.split()
"""28 steps of a training; `--log-every` and `--checkpoint-every` do not divide each other."""


@pytest.fixture(scope="session")
def run(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a finished training on `tiny`, which tells its two classes. Do not change it."""
    out = tmp_path_factory.mktemp("finished") / "run"
    arguments = "--model resnet20 --epochs 4 --batch-size-per-rank 16 --base-lr 0.1"
    more = ["--warmup-epochs", "1", "--momentum", "0.9"]
    assert main(["train", "--data", str(tiny), "--out", str(out), *arguments.split(), *more]) == 0
    return out


@pytest.fixture(scope="session")
def photograph_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a training of one step of a network for photographs of 224 pixels, of 10 classes."""
    out = tmp_path_factory.mktemp("photograph") / "run"
    network = "--model resnet20 --stem imagenet --image-size 224 --batch-size-per-rank 2"
    length = "--epochs 1 --max-steps 1 --warmup-epochs 0 --eval-every 0"
    arguments = [*network.split(), *length.split()]
    assert main(["train", "--synthetic", "--out", str(out), *arguments]) == 0
    return out


@pytest.fixture(scope="session")
def imagenet() -> list[Path]:
    """Return the 20 photographs of ImageNet that foolbox ships, `imagenet_NUMBER_CLASS.jpg`."""
    found = importlib.util.find_spec("foolbox")
    if found is None or found.origin is None:
        pytest.skip("foolbox is not installed (requirements/apps-test.in)")
    return sorted((Path(found.origin).parent / "data").glob("imagenet_*.jpg"))


@pytest.fixture
def train() -> Callable[..., int]:
    """Return a function that trains in this process and returns the exit code."""

    def run(data: Path, out: Path, *more: str) -> int:
        return main(["train", "--data", str(data), "--out", str(out), *SMALL_RUN, *more])

    return run


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="session")
def start() -> Start:
    """Return a function that starts a training in its own process, on one thread.

    Keywords are Popen's.
    """

    def run(data: Path, out: Path, *more: str, **changed: Any) -> subprocess.Popen[str]:
        arguments = ["train", "--data", str(data), "--out", str(out), *SMALL_RUN, *more]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(
            [sys.executable, "-m", "resnet_imagenet", *arguments],
            env=os.environ | {"OMP_NUM_THREADS": "1"}, **(piped | changed),
        )

    return run
