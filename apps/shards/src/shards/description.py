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
from shards.kinds import DocumentRule, FormatName, Kind, Labels, SampleKind, TokenType

DATASET = "dataset.json"
SCHEMA = 1

NAME = entries.text(r"[a-z0-9][a-z0-9-]*", "is not a name of small letters, digits and '-'")
FILE_NAME = entries.text(r"[A-Za-z0-9][A-Za-z0-9._+~-]*", "is not a plain name of a file")
SHA256 = entries.text(r"[0-9a-f]{64}", "is no SHA-256 of 64 hexadecimal digits")
# Readers open the listed paths, so a path must not lead out of the folder of the data set.
RELATIVE_PATH = entries.text(
    r"(?!\.\.?(/|$))[^\s\\/]+(/(?!\.\.?(/|$))[^\s\\/]+)*",
    "must be a relative path without '.', '..' and '//'",
)


def _size(checking: Checking, where: Where, value: object) -> Any:
    """Check a size in pixels: a whole number, or a list of width and height."""
    if isinstance(value, list) and len(value) == 2:
        return tuple(whole(checking, (*where, at), one) for at, one in enumerate(value))
    return whole(checking, where, value)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One shard and, for formats that need an index, its index file.

    Attributes:
        file: path of the shard, relative to the folder of the data set.
        index: path of the index, relative to the folder of the data set; None without an index.
        index_sha256: SHA-256 of the index in hexadecimal.
        samples: number of samples in the shard, or number of documents of a text.
        bytes: size of the shard in bytes.
        sha256: SHA-256 of the shard in hexadecimal.
        tokens: number of tokens of a text, including the end tokens; None for images.
        text_bytes: size of the text in bytes as UTF-8; None for images.
    """

    file: str = entry(RELATIVE_PATH)
    index: str | None = entry(optional(FILE_NAME), default=None)
    index_sha256: str | None = entry(optional(SHA256), default=None)
    samples: int = entry(whole)
    bytes: int = entry(whole)
    sha256: str = entry(SHA256)
    tokens: int | None = entry(optional(whole), default=None)
    text_bytes: int | None = entry(optional(whole), default=None)


@dataclass(frozen=True, kw_only=True)
class PackedSplit:
    """The shards of one split, in reading order, and the number of samples in all of them.

    Attributes:
        samples: number of samples.
        shards: the shards.
        tokens: number of tokens of a text, including the end tokens; None for images.
        text_bytes: size of the text in bytes as UTF-8, by which a loss is divided to get bits per
            byte; None for images.
    """

    samples: int = entry(whole)
    shards: list[Shard] = entry(listed(entries.record(Shard)))
    tokens: int | None = entry(optional(whole), default=None)
    text_bytes: int | None = entry(optional(whole), default=None)

    @classmethod
    def of(cls, shards: list[Shard]) -> PackedSplit:
        """Return the split that consists of `shards`."""
        return cls(
            samples=sum(shard.samples for shard in shards), shards=shards,
            tokens=_total([shard.tokens for shard in shards]),
            text_bytes=_total([shard.text_bytes for shard in shards]),
        )


def _total(counts: list[int | None]) -> int | None:
    """Return the sum of `counts`, or None if `counts` is empty or contains None."""
    known = [count for count in counts if count is not None]
    return sum(known) if counts and len(known) == len(counts) else None


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """Properties of all images of a data set.

    Attributes:
        channels: 1 for grey images, 3 for RGB.
        height: height in pixels; None if the images differ in height.
        width: width in pixels; None if the images differ in width.
        encoding: file name extension of the image files, without the dot.
        mean: mean of each channel over the training split, in 0..1.
        std: standard deviation of each channel over the training split, in 0..1.
    """

    channels: Literal[1, 3] = entry(one_of(1, 3))
    height: int | None = entry(optional(whole))
    width: int | None = entry(optional(whole))
    encoding: Literal["png", "jpg"] = entry(one_of("png", "jpg"))
    mean: list[float] = entry(listed(number))
    std: list[float] = entry(listed(number))


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """The tokenizer of a text: a file in the format of the library `tokenizers`.

    Attributes:
        file: name of the file in the folder of the data set.
        sha256: SHA-256 of the file in hexadecimal.
        made: origin of the tokenizer: `bytes` (each byte is a token), `bpe:SIZE` (byte-level BPE,
            trained on the split `train`), or `file` (a file that the user gave).
    """

    file: str = entry(FILE_NAME)
    sha256: str = entry(SHA256)
    made: str = entry(entries.text(r"bytes|bpe:[0-9]+|file", "is not bytes, bpe:SIZE or file"))


@dataclass(frozen=True, kw_only=True)
class TextFacts:
    """Properties of all documents of a text.

    Attributes:
        token: type of the stored tokens.
        vocabulary: size of the vocabulary; each token is smaller.
        end: the token at the end of each document; it occurs at no other place.
        tokenizer: the tokenizer that turned the text into tokens.
        documents: the rule that divided the source into documents.
        held_out: the rule that assigned the documents to the splits.
    """

    token: TokenType = entry(one_of(*get_args(TokenType)))
    vocabulary: int = entry(whole)
    end: int = entry(whole)
    tokenizer: Tokenizer = entry(entries.record(Tokenizer))
    documents: DocumentRule = entry(one_of(*get_args(DocumentRule)))
    held_out: str = entry(entries.text())

    @property
    def faults(self) -> list[Fault]:
        """A fault for each property of the text that contradicts another property."""
        found = []
        largest = largest_vocabulary(self.token)
        if self.vocabulary > largest:
            problem = f"is more than {self.token} can number ({largest:,}): use uint32"
            found.append(Fault(("text", "vocabulary"), problem, told=True, value=self.vocabulary))
        if self.end >= self.vocabulary:
            problem = f"is not less than the vocabulary of {self.vocabulary:,}"
            found.append(Fault(("text", "end"), problem, told=True, value=self.end))
        return found


def largest_vocabulary(token: TokenType) -> int:
    """Return the number of different tokens that the type `token` can store."""
    return 1 << {"uint16": 16, "uint32": 32}[token]


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The inputs of packing; together with the contract they determine the bytes of the shards.

    Attributes:
        contents: file name -> SHA-256 of each packed source file.
        order_seed: seed of the order of the samples; None for the order of the source.
        encoder: library and version that encoded the images, or that divided a text into tokens.
        decoder: library and version that decoded the videos; None without videos.
        resize: maximum length of the shorter side, or (width, height), in pixels; None if the
            images were not resized.
        quality: JPEG quality of the encoded images.
        skipped: number of undecodable images, or of unusable documents, that were left out.
    """

    contents: dict[str, str] = entry(mapped(FILE_NAME, SHA256))
    order_seed: int | None = entry(optional(whole), default=None)
    encoder: str = entry(entries.text())
    decoder: str | None = entry(optional(entries.text()), default=None)
    resize: int | tuple[int, int] | None = entry(optional(_size), default=None)
    quality: int | None = entry(optional(whole), default=None)
    skipped: int = entry(whole, default=0)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The content of `dataset.json`.

    Attributes:
        name: name of the data set.
        format: format of the shards.
        classes: names of the classes; the position of a name is the number of the class.
        labels: kind of label of each sample.
        sample: kind of sample: an image, a sequence of images, or a text.
        image: properties of all images; None for a text.
        text: properties of all documents of a text; None for images.
        splits: split name -> shards of the split.
        origin: inputs of packing; None if they are not recorded.
    """

    name: str = entry(NAME)
    format: FormatName = entry(one_of(*get_args(FormatName)))
    classes: list[str] = entry(listed(entries.text()))
    labels: Labels = entry(one_of(*get_args(Labels)), default="class")
    sample: SampleKind = entry(one_of(*get_args(SampleKind)), default="image")
    image: ImageFacts | None = entry(optional(entries.record(ImageFacts)), default=None)
    text: TextFacts | None = entry(optional(entries.record(TextFacts)), default=None)
    splits: dict[str, PackedSplit] = entry(mapped(NAME, entries.record(PackedSplit)))
    origin: Origin | None = entry(optional(entries.record(Origin)), default=None)

    @property
    def kind(self) -> Kind:
        """Kind of label and kind of sample of this data set."""
        return Kind(self.labels, self.sample)

    @property
    def shards(self) -> list[Shard]:
        """The shards of all splits."""
        return [shard for split in self.splits.values() for shard in split.shards]

    def hashes(self) -> dict[str, str]:
        """Return path -> SHA-256 of each shard, tokenizer and index whose checksum is listed."""
        found = {}
        if self.text is not None:
            found[self.text.tokenizer.file] = self.text.tokenizer.sha256
        for shard in self.shards:
            found[shard.file] = shard.sha256
            if shard.index is not None and shard.index_sha256 is not None:
                found[shard.index] = shard.index_sha256
        return found

    def missing_files(self, folder: Path) -> list[str]:
        """Return a message for each listed file that is missing and each shard of a wrong size."""
        names = [name for one in self.shards for name in (one.file, one.index) if name]
        names += [self.text.tokenizer.file] if self.text else []
        sizes = {name: (folder / name).stat().st_size for name in names
                 if (folder / name).is_file()}
        return self.wrong_sizes(folder, sizes)

    def wrong_sizes(self, place: Path, sizes: Mapping[str, int]) -> list[str]:
        """Return the messages of `missing_files`, computed from file sizes that are known already.

        Args:
            place: folder or address that the messages name.
            sizes: path below `place` -> size in bytes of each existing file.
        """
        faults = []
        if self.text and self.text.tokenizer.file not in sizes:
            faults.append(f"{place / self.text.tokenizer.file} is missing")
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
    """Check the parsed JSON of a `dataset.json`, and return it as a `Dataset`.

    Args:
        document: the parsed JSON.
        strict: whether unknown keys are faults, too. Trainings ignore unknown keys, because a later
            version of the packer may add keys.

    Raises:
        Malformed: the document violates the schema.
    """
    if isinstance(document, dict):
        schema, document = document.get("schema"), {**document}
        if type(schema) is not int or schema != SCHEMA:
            problem = f"is not {SCHEMA}, the schema that can be read"
            raise Malformed([Fault(("schema",), problem, told=True, value=schema)])
        del document["schema"]
    found = entries.parse(Dataset, document, strict=strict)
    if faults := _contradictions(found):
        raise Malformed(faults)
    return found


def _contradictions(dataset: Dataset) -> list[Fault]:
    """Return the faults of keys that are valid by themselves, but contradict other keys."""
    needed, other = ("text", "image") if dataset.sample == "text" else ("image", "text")
    faults = []
    if getattr(dataset, needed) is None:
        faults.append(Fault((needed,), "is missing"))
    if getattr(dataset, other) is not None:
        faults.append(Fault((other,), f"does not belong to samples of the kind {dataset.sample}"))
    return faults + (dataset.text.faults if dataset.text else [])


def text(dataset: Dataset) -> str:
    """Return the text of `dataset.json`, without the fields that have their default values."""
    document = {"schema": SCHEMA, **document_of(dataset)}
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def document_of(value: Dataset | Shard) -> dict[str, Any]:
    """Return a data set or a shard as a JSON object, without fields that have default values."""
    found = entries.plain(value)
    assert isinstance(found, dict)  # noqa: S101 - a dataclass becomes a dict
    return found
