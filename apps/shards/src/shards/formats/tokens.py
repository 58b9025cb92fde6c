"""Token shards: the documents of a text as arrays of tokens, in a safetensors file.

A file has the layout that https://github.com/huggingface/safetensors specifies: the size of the
header as a little-endian number of 64 bits, the header as JSON, and the arrays without gaps:

| array | type | content |
|---|---|---|
| `ends` | `I64` | for each document the position after its last token, increasing |
| `tokens` | `U16` or `U32` | the tokens of all documents; each document ends with the token `end` |

Spaces after the header align the arrays, so that they can be mapped into memory. The bytes depend
on the documents only.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shards.description import Dataset, Shard, TextFacts
from shards.errors import ShardError
from shards.files import sha256
from shards.formats.mapped import check_size
from shards.kinds import TokenType

SUFFIX = ".safetensors"
ALIGNED = 8
LONGEST_HEADER = 4096  # the two entries take about 130 bytes
TYPES: dict[str, TokenType] = {"U16": "uint16", "U32": "uint32"}
"""Name of a type in a safetensors header -> its name in `dataset.json`."""

Tokens: TypeAlias = NDArray[np.unsignedinteger[Any]]
"""Tokens of the type uint16 or uint32."""

_CHUNK = 1 << 22  # tokens that `scan` checks in one step


def write(
    folder: Path, stem: str, token: TokenType, documents: Sequence[Tokens], text_bytes: int
) -> Shard:
    """Write the shard `STEM.safetensors` into `folder`, and return its entry of `dataset.json`.

    Args:
        folder: an existing folder.
        stem: name of the file without its suffix.
        token: type of the stored tokens.
        documents: tokens of each document, including its end token, as arrays of the type `token`.
        text_bytes: size of the documents in bytes as UTF-8.

    Raises:
        OSError: the shard cannot be written; `folder` then contains an incomplete shard.
    """
    ends = np.cumsum([len(document) for document in documents], dtype="<i8")
    path = folder / f"{stem}{SUFFIX}"
    with path.open("wb") as file:
        file.write(_header(len(ends), int(ends[-1]), token))
        file.write(ends.tobytes())
        for document in documents:
            file.write(document.astype(_stored(token), casting="equiv").tobytes())
        file.flush()
        os.fsync(file.fileno())
    return Shard(
        file=path.name, samples=len(ends), bytes=path.stat().st_size, sha256=sha256(path),
        tokens=int(ends[-1]), text_bytes=text_bytes,
    )


def _stored(token: TokenType) -> np.dtype[np.unsignedinteger[Any]]:
    """Return the NumPy type of the stored tokens, which is little-endian on every machine."""
    return np.dtype({"uint16": "<u2", "uint32": "<u4"}[token])


def _header(documents: int, count: int, token: TokenType) -> bytes:
    """Return the first bytes of a file: the size of the header, and the header.

    The header is padded with spaces.

    Args:
        documents: number of documents.
        count: number of tokens.
        token: type of the tokens.
    """
    first = 8 * documents
    last = first + _stored(token).itemsize * count
    name = next(name for name, one in TYPES.items() if one == token)
    text = json.dumps({
        "ends": {"dtype": "I64", "shape": [documents], "data_offsets": [0, first]},
        "tokens": {"dtype": name, "shape": [count], "data_offsets": [first, last]},
    }, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    return len(text).to_bytes(8, "little") + text


class Reader:
    """The documents of one shard.

    Attributes:
        path: the shard.
        tokens: the tokens of all documents, mapped into memory, (tokens,), uint16 or uint32.
        ends: for each document the position after its last token, (documents,), int64, increasing.
            The last element is the number of tokens.

    Raises:
        ShardError: the file is missing, truncated or has another layout.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                start, documents, count, token = _layout(file.read(8 + LONGEST_HEADER), size)
                # The map stays open as long as one of the arrays exists.
                content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ShardError(f"shard {path} does not exist") from error
        except OSError as error:
            raise ShardError(f"shard {path} cannot be read: {error}") from error
        except ValueError as error:
            raise ShardError(f"shard {path} {error}; check all shards with `trimaran data verify`"
                             ) from error
        self.ends: NDArray[np.int64] = np.frombuffer(content, "<i8", documents, start)
        self.tokens: Tokens = np.frombuffer(content, _stored(token), count, start + 8 * documents)
        # A difference of ends could overflow.
        if self.ends[0] < 1 or np.any(self.ends[1:] <= self.ends[:-1]) or self.ends[-1] != count:
            raise ShardError(f"shard {path} has ends of documents that do not increase up to its"
                             f" {count:,} tokens")

    def __len__(self) -> int:
        return len(self.ends)

    def document(self, number: int) -> Tokens:
        """Return the tokens of a document, including its end token, as a view of the file."""
        first = int(self.ends[number - 1]) if number else 0
        return self.tokens[first : int(self.ends[number])]


def _layout(begin: bytes, size: int) -> tuple[int, int, int, TokenType]:
    """Return the layout of a shard from its first bytes.

    Args:
        begin: the first bytes of the file, with the whole header.
        size: size of the file in bytes.

    Returns:
        Position of the arrays in bytes, number of documents, number of tokens, type of the tokens.

    Raises:
        ValueError: the bytes are not the header of a token shard, or the file does not have the
            size that its header states. The message completes a sentence that begins with "shard".
    """
    length = int.from_bytes(begin[:8], "little")
    if len(begin) < 8 or length > LONGEST_HEADER:
        raise ValueError("has no header of a token shard")
    try:
        header = json.loads(begin[8 : 8 + length])
        (documents,), (count,) = (header[name]["shape"] for name in ("ends", "tokens"))
        token = TYPES[header["tokens"]["dtype"]]
        if not all(type(number) is int and number > 0 for number in (documents, count)):
            raise ValueError("another shape")
        if begin[: 8 + length] != _header(documents, count, token):
            raise ValueError("another header")
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise ValueError("has no header of a token shard") from error
    whole = 8 + length + 8 * documents + _stored(token).itemsize * count
    if size != whole:
        raise ValueError(f"has {size:,} bytes, but its header announces {whole:,}: it is truncated"
                         " or damaged")
    return 8 + length, documents, count, token


def open_split(folder: Path, dataset: Dataset, split: str) -> list[Reader]:
    """Return the shards of a split in reading order, after a check against `dataset.json`.

    Args:
        folder: folder of the data set.
        dataset: description of the data set, which must be a text data set.
        split: name of an existing split.

    Raises:
        ShardError: a shard is missing, truncated, or differs from its entry of `dataset.json` in
            its size, type, number of documents or number of tokens.
    """
    found = []
    for entry in dataset.splits[split].shards:
        reader = Reader(check_size(folder, entry))
        for what, here, listed in (
            ("documents", len(reader), entry.samples), ("tokens", len(reader.tokens), entry.tokens),
            ("tokens of the type", reader.tokens.dtype.name, dataset.text and dataset.text.token),
        ):
            if here != listed:
                raise ShardError(f"shard {reader.path} has {what}: {here}, but dataset.json lists"
                                 f" {listed}")
        found.append(reader)
    return found


def scan(path: Path, entry: Shard, text: TextFacts) -> Iterator[str]:
    """Yield the faults of a shard as text, after reading all of its tokens.

    Args:
        path: the shard.
        entry: entry of the shard in `dataset.json`.
        text: the properties of the text.
    """
    try:
        reader = Reader(path)
    except ShardError as error:
        yield str(error).removeprefix(f"shard {path} ")
        return
    if reader.tokens.dtype != np.dtype(text.token):
        yield f"has tokens of the type {reader.tokens.dtype}, {text.token} is listed"
    for what, here, listed in (("documents", len(reader), entry.samples),
                               ("tokens", len(reader.tokens), entry.tokens)):
        if listed is not None and here != listed:
            yield f"has {here:,} {what}, {listed:,} are listed"
    at_end = []
    for start in range(0, len(reader.tokens), _CHUNK):
        part = reader.tokens[start : start + _CHUNK]
        if (beyond := np.flatnonzero(part >= text.vocabulary)).size:
            place = start + int(beyond[0])
            yield (f"has the token {reader.tokens[place]} at position {place:,}, but the vocabulary"
                   f" has {text.vocabulary:,} tokens")
            return
        at_end.append(start + 1 + np.flatnonzero(part == text.end))
    found = np.concatenate(at_end)
    if not np.array_equal(found, reader.ends):
        same = min(len(found), len(reader.ends))
        wrong = np.flatnonzero(found[:same] != reader.ends[:same])
        number = int(wrong[0]) if wrong.size else same
        yield (f"has a wrong end of document {number}: the token {text.end} has to be its last"
               " token, and at no other place in it")
