"""Pack a data set of IDX files (Fashion-MNIST) into WebDataset shards of PNG files.

A record's number is the image's place in the source file, so that a message about a sample
leads back to it. The bytes depend only on the contents, on the constants below and on the
version of the encoder.
"""

from __future__ import annotations

import io
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from trimaran.data import dataset_json, formats
from trimaran.data.contracts import Contract, Split
from trimaran.data.formats.records import Kind, Record
from trimaran.data.formats.webdataset import BLOCK
from trimaran.data.packing import idx, pictures
from trimaran.data.packing.plan import ORDER_SEED, SHARD_SAMPLES, shuffled
from trimaran.errors import RunError
from trimaran.files import check_space, follow_umask, refusal
from trimaran.net.download import SPARE_BYTES
from trimaran.reporting import Advance, Reporter

COMPRESSION = 6  # of PNG (0 to 9), the default of the format's libraries
TEMPORARY = ".packing-"


@dataclass(frozen=True)
class Samples:
    """Grey images of one size and their classes, read and checked."""

    name: str
    height: int
    width: int
    pixels: bytes
    labels: bytes

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, number: int) -> Image.Image:
        """Return image `number` of the source file."""
        size = self.height * self.width
        raw = self.pixels[number * size : (number + 1) * size]
        return Image.frombytes("L", (self.width, self.height), raw)


def pack(contract: Contract, raw: Path, folder: Path, reporter: Reporter) -> None:
    """Make the packed data set `folder` from the verified files in `raw`.

    An older `folder` is replaced at the very end; a packing that is killed leaves
    the older one whole and a hidden temporary folder, which the next one removes.

    Raises:
        RunError: a file breaks its format, disagrees with the contract, or space is lacking.
    """
    splits = {name: read_split(contract, raw, name) for name in contract.splits}
    total = sum(len(samples) for samples in splits.values())
    needed = sum(_packed_size_at_most(samples) for samples in splits.values())
    check_space(folder.parent, needed + SPARE_BYTES, f"packing {contract.name}", RunError)
    for leftover in folder.parent.glob(f"{TEMPORARY}*"):
        shutil.rmtree(leftover)
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder.parent))
    try:
        with reporter.bar(f"packing {contract.name}", total, unit="images") as advance:
            shards = {
                name: list(_write_split(samples, temporary, advance))
                for name, samples in splits.items()
            }
        dataset = _describe(contract, splits, shards)
        dataset_json.write(temporary, dataset)
        follow_umask(temporary)
        _replace(temporary, folder)
    except OSError as error:
        raise RunError(
            f"cannot pack {contract.name} into {folder}: {refusal(error, folder)}"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def read_split(contract: Contract, raw: Path, name: str) -> Samples:
    """Read one split from its IDX files and check it against the contract."""
    split: Split = contract.splits[name]
    images = idx.read(raw / split.images, dimensions=3)
    labels = idx.read(raw / split.labels, dimensions=1)
    for path, count in ((split.images, images.shape[0]), (split.labels, labels.shape[0])):
        if count != split.samples:
            raise RunError(f"{raw / path} has {count:,} samples, not {split.samples:,}")
    if 0 in images.shape:
        raise RunError(f"{raw / split.images} holds images without pixels: {images.shape}")
    highest = max(labels.values)
    if highest >= len(contract.classes):
        record = labels.values.index(highest)
        raise RunError(
            f"{raw / split.labels}: record {record} has class {highest},"
            f" the contract has {len(contract.classes)} classes"
        )
    return Samples(name, images.shape[1], images.shape[2], images.values, labels.values)


def _write_split(samples: Samples, folder: Path, advance: Advance) -> Iterator[dataset_json.Shard]:
    order = shuffled(samples.name, len(samples))
    for number, start in enumerate(range(0, len(order), SHARD_SAMPLES)):
        chosen = order[start : start + SHARD_SAMPLES]
        stem = f"{samples.name}-{number:05d}"
        found = records(samples, chosen, advance)
        yield formats.write_shard("webdataset", folder, stem, Kind(), found)


def records(samples: Samples, chosen: list[int], advance: Advance) -> Iterator[Record]:
    """Yield the images of these numbers as PNG files."""
    for number in chosen:
        image = _png(samples.image(number))
        yield Record(number, samples.name, (samples.labels[number],), (image,), "png")
        advance(1)


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=COMPRESSION)
    return buffer.getvalue()


def _packed_size_at_most(samples: Samples) -> int:
    """Two headers and two roundings per sample, and a PNG that does not compress at all."""
    png = samples.height * (samples.width + 1) + 128
    return len(samples) * (4 * BLOCK + png) + 20 * BLOCK


def moments(samples: Samples) -> tuple[float, float]:
    """Return mean and (population) standard deviation of all pixels, in 0..1."""
    strip = Image.frombytes(
        "L", (samples.height * samples.width, len(samples)), samples.pixels
    )
    counts = strip.histogram()
    total = sum(counts)
    first = sum(value * count for value, count in enumerate(counts))
    second = sum(value * value * count for value, count in enumerate(counts))
    mean = first / total
    return mean / 255, math.sqrt(max(second / total - mean * mean, 0)) / 255


def _describe(
    contract: Contract, splits: dict[str, Samples], shards: dict[str, list[dataset_json.Shard]]
) -> dataset_json.Dataset:
    mean, std = moments(splits["train"])
    sizes = {(samples.height, samples.width) for samples in splits.values()}
    height, width = sizes.pop() if len(sizes) == 1 else (None, None)
    return dataset_json.Dataset(
        schema=1,
        name=contract.name,
        format="webdataset",
        classes=contract.classes,
        image=dataset_json.ImageFacts(
            channels=1, height=height, width=width, encoding="png",
            mean=[round(mean, 6)], std=[round(std, 6)],
        ),
        splits={
            name: dataset_json.PackedSplit(samples=len(splits[name]), shards=listed)
            for name, listed in shards.items()
        },
        origin=dataset_json.Origin(
            contents={name: content.sha256 for name, content in contract.files.items()},
            order_seed=ORDER_SEED,
            encoder=pictures.ENCODER,
        ),
    )


def _replace(temporary: Path, folder: Path) -> None:
    """Put `temporary` in the place of `folder`; a folder cannot be renamed onto a filled one."""
    old = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder.parent))
    if os.path.lexists(folder):
        folder.rename(old / "old")
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
