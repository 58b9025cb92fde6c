"""Make JPEG files similar to those of ImageNet for a benchmark: a folder and packed shards.

The training images of ImageNet have about 500 x 375 pixels and 115 kB on average (the official
tars have 147,897,477,120 bytes for 1,281,167 files). The files here are random windows of that
size from real photographs, so that decoders process real textures.
"""

from __future__ import annotations

import importlib.util
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from shards.description import document_of
from shards.formats import write_shard
from shards.formats.records import Record
from shards.kinds import ImageFormat, Kind
from sidebyside.runner import BenchmarkError

WIDTH, HEIGHT, QUALITY = 500, 375, 97  # this quality gives files of similar size
CLASSES = 1000  # as in ImageNet, so that the network equals that of --synthetic
PER_SHARD = 512
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet


@dataclass(frozen=True)
class Photographs:
    """The images of a benchmark.

    Attributes:
        folder: folder with the files `CLASS/NUMBER.jpg`.
        files: paths of all files.
        packed: folder with the same files in WebDataset shards, and `dataset.json`.
        note: text for the report: number, source and mean size of the images.
    """

    folder: Path
    files: Sequence[Path]
    packed: Path
    note: str


def make(place: Path, count: int, photographs: Path | None) -> Photographs:
    """Make `count` JPEG files in `place`, equal in every run.

    Args:
        place: an empty folder.
        count: number of files.
        photographs: folder of photographs; None: the photographs of the package foolbox if it is
            installed, else generated images.

    Raises:
        BenchmarkError: no photograph is large enough.
    """
    source, window = windows(photographs)
    folder, packed = place / "images", place / "packed"
    draw = random.Random(17)  # noqa: S311
    files = []
    for number in range(count):
        label = draw.randrange(CLASSES)
        path = folder / f"{label:03d}/{number:08d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        window(draw).save(path, "JPEG", quality=QUALITY)
        files.append(path)
    pack(files, packed)
    size = sum(path.stat().st_size for path in files) / count / 1000
    note = (f"images: {count} JPEG of {WIDTH} x {HEIGHT}, quality {QUALITY}, {size:.0f} kB on "
            f"average, from {source}")
    return Photographs(folder, files, packed, note)


def windows(photographs: Path | None) -> tuple[str, Callable[[random.Random], Image.Image]]:
    """Return a description of the photographs, and a function that cuts a random image from them.

    If no photographs are given and foolbox is not installed, the function generates noise.
    """
    if photographs is None:
        spec = importlib.util.find_spec("foolbox")
        if spec is None or spec.origin is None:
            return "generated 1/f noise (foolbox is not installed)", generated
        paths = sorted(Path(spec.origin).parent.glob("data/imagenet_*.jpg"))
        source = f"{len(paths)} ImageNet photographs of the package foolbox"
    else:
        paths = sorted(photographs.rglob("*.jp*g"))
        source = f"{len(paths)} photographs"
    images = [one for one in map(_open, paths) if one.width >= WIDTH and one.height >= HEIGHT]
    if not images:
        raise BenchmarkError(f"{photographs or 'foolbox'} has no photograph of {WIDTH} x {HEIGHT}")

    def window(draw: random.Random) -> Image.Image:
        image = draw.choice(images)
        left = draw.randint(0, image.width - WIDTH)
        upper = draw.randint(0, image.height - HEIGHT)
        part = image.crop((left, upper, left + WIDTH, upper + HEIGHT))
        return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if draw.random() < 0.5 else part

    return source, window


def _open(path: Path) -> Image.Image:
    with Image.open(path) as image:
        rgb: Image.Image = image.convert("RGB")
    return rgb


def generated(draw: random.Random) -> Image.Image:
    """Return an image whose amplitudes decrease with 1/frequency, as in photographs.

    Source: Field, J. Opt. Soc. Am. A 4 (1987) 2379.
    """
    noise = np.random.default_rng(draw.randrange(2**32)).standard_normal((4, HEIGHT, WIDTH))
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None, :])
    frequency[0, 0] = np.inf
    fields = np.fft.irfft2(np.fft.rfft2(noise) / frequency, s=(HEIGHT, WIDTH))
    fields /= fields.std(axis=(1, 2), keepdims=True)
    colours = fields[0] + 0.3 * fields[1:]  # the channels of photographs are much alike
    pixels = np.clip(110 + 55 * colours, 0, 255).astype(np.uint8)
    return Image.fromarray(np.moveaxis(pixels, 0, -1))


def pack(files: Sequence[Path], packed: Path, form: ImageFormat = "webdataset") -> None:
    """Pack `files` (`CLASS/NUMBER.jpg`) into the new folder `packed`.

    The split train has all files; the split val has the first 64 of them.
    """
    packed.mkdir(parents=True)
    splits = {"train": files, "val": files[:64]}
    document = {
        "schema": 1,
        "name": "benchmark-photographs",
        "format": form,
        "classes": [f"class {number}" for number in range(CLASSES)],
        "image": {"channels": 3, "height": None, "width": None, "encoding": "jpg",
                  "mean": MEAN, "std": STD},
        "splits": {
            name: {
                "samples": len(chosen),
                "shards": [
                    document_of(write_shard(
                        form, packed, f"{name}-{number:05d}", Kind(),
                        map(_record, chosen[start : start + PER_SHARD]),
                    ))
                    for number, start in enumerate(range(0, len(chosen), PER_SHARD))
                ],
            }
            for name, chosen in splits.items()
        },
    }
    (packed / "dataset.json").write_text(json.dumps(document))


def _record(file: Path) -> Record:
    label = int(file.parent.name)
    return Record(int(file.stem), file.name, (label,), (file.read_bytes(),), "jpg")
