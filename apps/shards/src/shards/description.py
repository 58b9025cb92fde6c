"""The schema of `dataset.json`, which describes a packed data set and lists its shards."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from shards import entries
from shards.entries import (
    Checking,
    Fault,
    Malformed,
    Where,
    entry,
    listed,
    mapped,
    number,
    one_of,
    optional,
    whole,
)
from shards.kinds import FormatName, Kind, Labels, SampleKind

DATASET = "dataset.json"
SCHEMA = 1

NAME = entries.text(r"[a-z0-9][a-z0-9-]*", "is no name of small letters, digits and '-'")
FILE_NAME = entries.text(r"[A-Za-z0-9][A-Za-z0-9._+~-]*", "is no plain name of a file")
SHA256 = entries.text(r"[0-9a-f]{64}", "is no SHA-256 of 64 hexadecimal digits")
# A reader opens what is listed: nothing outside of the data set's folder.
RELATIVE_PATH = entries.text(
    r"(?!\.\.?(/|$))[^\s\\/]+(/(?!\.\.?(/|$))[^\s\\/]+)*",
    "must be a relative path without '.', '..' and '//'",
)


def _size(checking: Checking, where: Where, value: object) -> Any:
    """Check a number of pixels, or a width and a height."""
    if isinstance(value, list) and len(value) == 2:
        return tuple(whole(checking, (*where, at), one) for at, one in enumerate(value))
    return whole(checking, where, value)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of samples, and its index where the format has one.

    Attributes:
        file: its path below the folder of the data set.
        index: path of its index.
        index_sha256: checksum of the index.
        samples: how many it has.
        bytes: its size.
        sha256: its checksum.
    """

    file: str = entry(RELATIVE_PATH)
    index: str | None = entry(optional(FILE_NAME), default=None)
    index_sha256: str | None = entry(optional(SHA256), default=None)
    samples: int = entry(whole)
    bytes: int = entry(whole)
    sha256: str = entry(SHA256)


@dataclass(frozen=True, kw_only=True)
class PackedSplit:
    """The shards of one split, in reading order."""

    samples: int = entry(whole)
    shards: list[Shard] = entry(listed(entries.record(Shard)))

    @classmethod
    def of(cls, shards: list[Shard]) -> PackedSplit:
        """Return the split that these shards are all of."""
        return cls(samples=sum(shard.samples for shard in shards), shards=shards)


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """What all images share.

    Attributes:
        channels: 1 of grey images, 3 of RGB.
        height: in pixels; None where it varies.
        width: in pixels; None where it varies.
        encoding: ending of the image files.
        mean: of the training split, for each channel, in 0..1.
        std: standard deviation of the training split, for each channel, in 0..1.
    """

    channels: Literal[1, 3] = entry(one_of(1, 3))
    height: int | None = entry(optional(whole))
    width: int | None = entry(optional(whole))
    encoding: Literal["png", "jpg"] = entry(one_of("png", "jpg"))
    mean: list[float] = entry(listed(number))
    std: list[float] = entry(listed(number))


@dataclass(frozen=True, kw_only=True)
class Origin:
    """From what the shards were made: they are a function of this and the contract.

    Attributes:
        contents: file -> checksum of what was packed.
        order_seed: of the order of the samples.
        encoder: library and version that encoded images.
        decoder: library and version that decoded videos.
        resize: pixels of the shorter side at most, or width and height.
        quality: of the JPEGs that were encoded.
        skipped: how many undecodable images were left out.
    """

    contents: dict[str, str] = entry(mapped(FILE_NAME, SHA256))
    order_seed: int = entry(whole)
    encoder: str = entry(entries.text())
    decoder: str | None = entry(optional(entries.text()), default=None)
    resize: int | tuple[int, int] | None = entry(optional(_size), default=None)
    quality: int | None = entry(optional(whole), default=None)
    skipped: int = entry(whole, default=0)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The content of `dataset.json`.

    Attributes:
        name: of the data set.
        format: of its shards.
        classes: names of the classes, by their numbers.
        labels: what a sample is labelled with.
        sample: what a sample is.
        image: what all images share.
        splits: the shards, by the names of the splits.
        origin: from what they were made.
    """

    name: str = entry(NAME)
    format: FormatName = entry(one_of(*get_args(FormatName)))
    classes: list[str] = entry(listed(entries.text()))
    labels: Labels = entry(one_of(*get_args(Labels)), default="class")
    sample: SampleKind = entry(one_of(*get_args(SampleKind)), default="image")
    image: ImageFacts = entry(entries.record(ImageFacts))
    splits: dict[str, PackedSplit] = entry(mapped(NAME, entries.record(PackedSplit)))
    origin: Origin | None = entry(optional(entries.record(Origin)), default=None)

    @property
    def kind(self) -> Kind:
        """What its samples are."""
        return Kind(self.labels, self.sample)

    @property
    def shards(self) -> list[Shard]:
        """The shards of all splits."""
        return [shard for split in self.splits.values() for shard in split.shards]

    def hashes(self) -> dict[str, str]:
        """Return the listed SHA-256 of each shard and of each index that has one."""
        found = {}
        for shard in self.shards:
            found[shard.file] = shard.sha256
            if shard.index is not None and shard.index_sha256 is not None:
                found[shard.index] = shard.index_sha256
        return found

    def missing_files(self, folder: Path) -> list[str]:
        """Return a fault for each shard or index that is missing or has a wrong size."""
        names = [name for one in self.shards for name in (one.file, one.index) if name]
        sizes = {name: (folder / name).stat().st_size for name in names
                 if (folder / name).is_file()}
        return self.wrong_sizes(folder, sizes)

    def wrong_sizes(self, place: Path, sizes: Mapping[str, int]) -> list[str]:
        """Return what `missing_files` does, for files that have these `sizes` in bytes."""
        faults = []
        for shard in self.shards:
            found, path = sizes.get(shard.file), place / shard.file
            if found is None:
                faults.append(f"{path} is missing")
            elif found != shard.bytes:
                faults.append(f"{path} has {found:,} bytes, {shard.bytes:,} are listed")
            if shard.index and shard.index not in sizes:
                faults.append(f"{place / shard.index} is missing")
        return faults


def parse(document: object, *, strict: bool) -> Dataset:
    """Return what the parsed JSON of a `dataset.json` says.

    Args:
        document: the parsed JSON.
        strict: refuse unknown keys, too. A training does not: a later packer may have more to say.

    Raises:
        Malformed: it breaks the schema.
    """
    if isinstance(document, dict):
        schema, document = document.get("schema"), {**document}
        if type(schema) is not int or schema != SCHEMA:
            problem = f"is not {SCHEMA}, the schema that can be read"
            raise Malformed([Fault(("schema",), problem, told=True, value=schema)])
        del document["schema"]
    return entries.parse(Dataset, document, strict=strict)


def text(dataset: Dataset) -> str:
    """Return the text of `dataset.json`, without what is at its default."""
    document = {"schema": SCHEMA, **document_of(dataset)}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def document_of(value: Dataset | Shard) -> dict[str, Any]:
    """Return the entries of a part of `dataset.json`, without what is at its default."""
    found = entries.plain(value)
    assert isinstance(found, dict)  # noqa: S101 - what a dataclass becomes
    return found
