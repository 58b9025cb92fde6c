"""Pack data sets that are read from arrays (such as Fashion-MNIST) into shards of PNG files.

The key of a record is the index of its image or sequence in the files of the split. If a message
names a record, the user can find its source by this index. The bytes of the shards depend only on
the files, the contract, the constants below and the version of the encoder.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

from shards import formats, picturefile
from shards.description import Dataset, ImageFacts, Origin, PackedSplit, Shard
from shards.formats.records import Record
from shards.formats.webdataset import BLOCK
from shards.kinds import ImageFormat, Kind
from trimaran.data import dataset_json
from trimaran.data.contracts import OfArrays
from trimaran.data.packing import pictures
from trimaran.data.packing.listing import Samples
from trimaran.data.packing.plan import ORDER_SEED, SHARD_SAMPLES, shuffled
from trimaran.errors import RunError
from trimaran.files import SPARE_BYTES, check_space, follow_umask, writing
from trimaran.reporting import Advance, Reporter

COMPRESSION = 6  # zlib level of PNG files (0 to 9); the default of libpng
TEMPORARY = ".packing-"


def pack(
    contract: OfArrays, raw: Path, folder: Path, reporter: Reporter,
    form: ImageFormat = "webdataset",
) -> None:
    """Write the packed data set `folder` from the verified files in `raw`.

    An existing `folder` is replaced at the very end. If the packing is killed, `folder` stays
    intact, and a hidden temporary folder remains, which the next packing removes.

    Raises:
        RunError: a file violates its format or differs from the contract, or the disk has too
            little free space.
    """
    splits = {name: contract.read(raw, name) for name in contract.splits}
    total = sum(len(samples) for samples in splits.values())
    needed = sum(_packed_size_at_most(samples) for samples in splits.values())
    check_space(folder.parent, needed + SPARE_BYTES, f"packing {contract.name}", RunError)
    for leftover in folder.parent.glob(f"{TEMPORARY}*"):
        shutil.rmtree(leftover)
    temporary = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder.parent))
    try:
        with writing(f"pack {contract.name} into {folder}", folder):
            with reporter.bar(f"packing {contract.name}", total, unit="samples") as advance:
                shards = {
                    name: list(_write_split(form, samples, contract.kind, temporary, advance))
                    for name, samples in splits.items()
                }
            dataset_json.write(temporary, _describe(contract, form, splits, shards))
            follow_umask(temporary)
            _replace(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _write_split(
    form: ImageFormat, samples: Samples, kind: Kind, folder: Path, advance: Advance
) -> Iterator[Shard]:
    order = shuffled(samples.name, len(samples))
    for number, start in enumerate(range(0, len(order), SHARD_SAMPLES)):
        chosen = order[start : start + SHARD_SAMPLES]
        stem = f"{samples.name}-{number:05d}"
        found = records(samples, chosen, advance)
        yield formats.write_shard(form, folder, stem, kind, found)


def records(samples: Samples, chosen: list[int], advance: Advance) -> Iterator[Record]:
    """Yield the records of the samples whose numbers are in `chosen`, with each frame as PNG."""
    for number in chosen:
        frames = tuple(map(_png, samples.frames(number)))
        yield Record(number, samples.name, samples.labels(number), frames, "png")
        advance(1)


def _png(image: Image.Image) -> bytes:
    return picturefile.saved(image, "PNG", compress_level=COMPRESSION)


def _packed_size_at_most(samples: Samples) -> int:
    """Return an upper bound of the packed size in bytes.

    It counts a header and the padding for each frame and label, and PNG files without compression.
    """
    frames, height, width = samples.shape
    png = height * (width * samples.channels + 1) + 128
    return len(samples) * (2 * BLOCK + frames * (2 * BLOCK + png)) + 20 * BLOCK


def moments(samples: Samples) -> list[tuple[float, float]]:
    """Return the mean and the population standard deviation of each channel, scaled to 0..1."""
    histogram = samples.histogram()
    return [_moments(histogram[256 * channel :][:256]) for channel in range(samples.channels)]


def _moments(counts: list[int]) -> tuple[float, float]:
    total = sum(counts)
    first = sum(value * count for value, count in enumerate(counts))
    second = sum(value * value * count for value, count in enumerate(counts))
    mean = first / total
    return mean / 255, math.sqrt(max(second / total - mean * mean, 0)) / 255


def _describe(
    contract: OfArrays, form: ImageFormat, splits: dict[str, Samples],
    shards: dict[str, list[Shard]],
) -> Dataset:
    found = moments(splits["train"])
    sizes = {samples.shape[1:] for samples in splits.values()}
    height, width = sizes.pop() if len(sizes) == 1 else (None, None)
    return Dataset(
        name=contract.name,
        format=form,
        classes=contract.classes,
        labels=contract.kind.labels,
        sample=contract.kind.sample,
        image=ImageFacts(
            channels=splits["train"].channels, height=height, width=width, encoding="png",
            mean=[round(mean, 6) for mean, _ in found], std=[round(std, 6) for _, std in found],
        ),
        splits={name: PackedSplit.of(listed) for name, listed in shards.items()},
        origin=Origin(
            contents={name: content.sha256 for name, content in contract.files.items()},
            order_seed=ORDER_SEED,
            encoder=pictures.ENCODER,
        ),
    )


def _replace(temporary: Path, folder: Path) -> None:
    """Rename `temporary` to `folder`, after moving an existing `folder` away.

    The system cannot rename a folder to the name of a folder that is not empty.
    """
    old = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=folder.parent))
    if os.path.lexists(folder):
        folder.rename(old / "old")
    temporary.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
