"""A packed data set on disk: `dataset.json` and the shards that it lists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trimaran import strict
from trimaran.data.contracts import AnyContract, Contract
from trimaran.data.kinds import FormatName, Kind, Labels, SampleKind
from trimaran.data.origins import FileName, Name, RelativePath
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.strict import Sha256

DATASET = "dataset.json"
Count = Annotated[int, Field(ge=0)]


class Shard(strict.Model):
    """One file of samples, and its index where the format has one."""

    file: RelativePath
    index: FileName | None = None
    index_sha256: Sha256 | None = None
    samples: Count
    bytes: Count
    sha256: Sha256


class PackedSplit(strict.Model):
    """The shards of one split, in reading order."""

    samples: Count
    shards: list[Shard]

    @classmethod
    def of(cls, shards: list[Shard]) -> PackedSplit:
        """Return the split that these shards are all of."""
        return cls(samples=sum(shard.samples for shard in shards), shards=shards)


class ImageFacts(strict.Model):
    """What all images share; `mean` and `std` per channel, of the training split, in 0..1."""

    channels: Literal[1, 3]
    height: Count | None = Field(description="pixels; null: varying")
    width: Count | None = Field(description="pixels; null: varying")
    encoding: Literal["png", "jpg"]
    mean: list[float]
    std: list[float]


class Origin(strict.Model):
    """From what the shards were made: they are a function of this and the contract."""

    contents: dict[FileName, Sha256]
    order_seed: int
    encoder: str
    decoder: str | None = Field(default=None, description="of videos")
    resize: Count | tuple[Count, Count] | None = Field(
        default=None, description="pixels of the shorter side at most, or width and height"
    )
    quality: Count | None = Field(default=None, description="of the JPEGs that were encoded")
    skipped: Count = Field(default=0, description="undecodable images that were left out")


class Dataset(strict.Model):
    """The content of `dataset.json`."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    format: FormatName
    classes: list[str]
    labels: Labels = Field(default="class", description="one class, any number, or none")
    sample: SampleKind = Field(default="image", description="one image, or a sequence of them")
    image: ImageFacts
    splits: dict[Name, PackedSplit]
    origin: Origin | None = None

    @property
    def kind(self) -> Kind:
        """What its samples are."""
        return Kind(self.labels, self.sample)


def read(folder: Path) -> Dataset:
    """Read `dataset.json` of `folder`.

    Raises:
        UsageError: it is missing or malformed, or lists indexes without their hashes.
    """
    if not (folder / DATASET).is_file():
        raise UsageError(
            f"{folder} holds no packed data set (no {DATASET})",
            hint="give the folder that `trimaran data get` or `data pack` made",
        )
    dataset = strict.load_json(Dataset, folder / DATASET)
    # A reader finds images and classes by the index: another one gives other labels.
    if any(shard.index is not None and shard.index_sha256 is None for shard in shards(dataset)):
        raise UsageError(
            f"{folder / DATASET} lists no hashes of the indexes: an earlier version of Trimaran"
            " packed it",
            hint=f"pack it again: `trimaran data get {dataset.name} --format {dataset.format}`, or"
            " `trimaran data pack` into a new folder",
        )
    return dataset


def write(folder: Path, dataset: Dataset) -> None:
    """Write `dataset.json`, after everything that it lists; without what is at its default."""
    text = dataset.model_dump_json(by_alias=True, indent=2, exclude_defaults=True)
    write_atomic(folder / DATASET, text + "\n")


def mismatches(contract: AnyContract, dataset: Dataset, samples: Mapping[str, int]) -> list[str]:
    """Return how `dataset` differs from `contract` and from the `samples` needed per split."""
    if dataset.name != contract.name:
        return [f"it holds '{dataset.name}', not '{contract.name}'"]
    faults = []
    if dataset.kind != contract.kind:
        faults.append(f"its samples are '{dataset.kind.word}', not '{contract.kind.word}'")
    if dataset.classes != contract.classes:
        faults.append("its classes are not those of the contract")
    wanted = {name: split.samples for name, split in contract.splits.items()} | dict(samples)
    for name, count in wanted.items():
        split = dataset.splits.get(name)
        if split is None:
            faults.append(f"split {name} is missing")
            continue
        if count is not None and split.samples != count:
            faults.append(f"split {name} has {split.samples:,} samples, {count:,} are needed")
        if split.samples != sum(shard.samples for shard in split.shards):
            faults.append(f"split {name}: its shards do not add up to {split.samples:,} samples")
    return faults


def unpinned(contract: AnyContract, digest: str) -> list[str]:
    """Return a fault unless `digest` is the SHA-256 of `dataset.json` that `contract` pins."""
    pinned = contract.packed if isinstance(contract, Contract) else None
    if pinned is None or digest == pinned.sha256:
        return []
    return [
        f"its {DATASET} has the SHA-256 {digest}, the contract pins {pinned.sha256}: it was"
        " changed, or packed by another version of Trimaran"
    ]


def hashes(dataset: Dataset) -> dict[str, str]:
    """Return the listed SHA-256 of each shard and index."""
    found = {}
    for shard in shards(dataset):
        found[shard.file] = shard.sha256
        if shard.index is not None:
            found[shard.index] = str(shard.index_sha256)  # `read` saw to it
    return found


def missing_files(folder: Path, dataset: Dataset) -> list[str]:
    """Return a fault for each shard or index that is missing or has a wrong size; no hashing."""
    names = [name for shard in shards(dataset) for name in (shard.file, shard.index) if name]
    sizes = {name: (folder / name).stat().st_size for name in names if (folder / name).is_file()}
    return wrong_sizes(folder, dataset, sizes)


def wrong_sizes(place: Path, dataset: Dataset, sizes: Mapping[str, int]) -> list[str]:
    """Return what `missing_files` does, for files that have these `sizes` in bytes."""
    faults = []
    for shard in shards(dataset):
        found = sizes.get(shard.file)
        if found is None:
            faults.append(f"{place / shard.file} is missing")
        elif found != shard.bytes:
            faults.append(f"{place / shard.file} has {found:,} bytes, {shard.bytes:,} are listed")
        if shard.index and shard.index not in sizes:
            faults.append(f"{place / shard.index} is missing")
    return faults


def shards(dataset: Dataset) -> list[Shard]:
    """Return those of all splits."""
    return [shard for split in dataset.splits.values() for shard in split.shards]
