"""A packed data set on disk: `dataset.json` and the WebDataset shards that it lists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trimaran import strict
from trimaran.contracts import Contract, FileName, Name, Sha256
from trimaran.errors import UsageError
from trimaran.files import sha256
from trimaran.reporting import Reporter

DATASET = "dataset.json"
Count = Annotated[int, Field(ge=0)]


class Shard(strict.Model):
    """One tar file of samples, and its index for DALI's reader."""

    file: FileName
    index: FileName
    samples: Count
    bytes: Count
    sha256: Sha256


class PackedSplit(strict.Model):
    """The shards of one split, in reading order."""

    samples: Count
    shards: list[Shard]


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


class Dataset(strict.Model):
    """The content of `dataset.json`."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    format: Literal["webdataset"]
    classes: list[str]
    image: ImageFacts
    splits: dict[Name, PackedSplit]
    origin: Origin | None = None


def read(folder: Path) -> Dataset:
    """Read `dataset.json` of `folder`.

    Raises:
        UsageError: it is missing or malformed.
    """
    if not (folder / DATASET).is_file():
        raise UsageError(
            f"{folder} holds no packed data set (no {DATASET})",
            hint="give the folder that `trimaran data get` names",
        )
    return strict.load(Dataset, folder / DATASET)


def mismatches(contract: Contract, dataset: Dataset, samples: Mapping[str, int]) -> list[str]:
    """Return how `dataset` differs from `contract` and from the `samples` needed per split."""
    if dataset.name != contract.name:
        return [f"it holds '{dataset.name}', not '{contract.name}'"]
    faults = []
    if dataset.classes != contract.classes:
        faults.append("its classes are not those of the contract")
    wanted = {name: split.samples for name, split in contract.splits.items()} | dict(samples)
    for name, count in wanted.items():
        split = dataset.splits.get(name)
        if split is None:
            faults.append(f"split {name} is missing")
            continue
        if split.samples != count:
            faults.append(f"split {name} has {split.samples:,} samples, {count:,} are needed")
        if split.samples != sum(shard.samples for shard in split.shards):
            faults.append(f"split {name}: its shards do not add up to {split.samples:,} samples")
    return faults


def missing_files(folder: Path, dataset: Dataset) -> list[str]:
    """Return a fault for each shard or index that is missing or has a wrong size; no hashing."""
    faults = []
    for split in dataset.splits.values():
        for shard in split.shards:
            path = folder / shard.file
            if not path.is_file():
                faults.append(f"{path} is missing")
            elif path.stat().st_size != shard.bytes:
                faults.append(
                    f"{path} has {path.stat().st_size:,} bytes, {shard.bytes:,} are listed"
                )
            if not (folder / shard.index).is_file():
                faults.append(f"{folder / shard.index} is missing")
    return faults


def damaged_files(folder: Path, dataset: Dataset, reporter: Reporter) -> list[str]:
    """Return a fault for each present shard whose hash, or index whose entries, are wrong."""
    shards = [shard for split in dataset.splits.values() for shard in split.shards]
    faults = []
    total = sum(shard.bytes for shard in shards)
    with reporter.bar(f"verifying {dataset.name}", total, unit="B") as advance:
        for shard in shards:
            path, index = folder / shard.file, folder / shard.index
            if path.is_file() and path.stat().st_size == shard.bytes:
                found = sha256(path)
                if found != shard.sha256:
                    faults.append(
                        f"{path} is damaged: SHA-256 {found}, {shard.sha256} is listed"
                    )
                elif index.is_file():
                    faults += _index_faults(path, index, shard.samples)
            advance(shard.bytes)
    return faults


def _index_faults(path: Path, index: Path, samples: int) -> list[str]:
    """Compare an index with the names and sizes in the tar headers that it points to."""
    lines = index.read_text(encoding="utf-8", errors="replace").splitlines()
    if not lines or lines[0] != f"v1.2 {samples}" or len(lines) != samples + 1:
        return [f"{index} is damaged: it does not list {samples:,} samples"]
    with path.open("rb") as tar:
        for number, line in enumerate(lines[1:], start=2):
            words = line.split(" ")
            if len(words) % 4 or not all(
                _points_at(tar.fileno(), *words[at : at + 4]) for at in range(0, len(words), 4)
            ):
                return [f"{index}:{number} is damaged: it does not point at its sample"]
    return []


def _points_at(tar: int, extension: str, offset: str, size: str, name: str) -> bool:
    if not (offset.isdigit() and size.isdigit() and int(offset) >= 512):
        return False
    header = os.pread(tar, 512, int(offset) - 512)
    return (
        header[:100].rstrip(b"\0") == name.encode()
        and header[124:135] == f"{int(size):011o}".encode()
        and name.endswith(f".{extension}")
    )
