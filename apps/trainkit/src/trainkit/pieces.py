"""Arrays that are distributed over ranks: each rank writes its own pieces, and can read any part.

The files have the format of safetensors (`tensorfile`). The metadata of a file has the shape of
each whole array and the position of the piece in the array.

PyTorch can store sharded states in such files, too (`torch.distributed.checkpoint`, class
`HuggingFaceStorageWriter`). That format is not used, because `HuggingFaceStorageReader` verifies no
checksum and has no list of the files: it computes the shape of an array from the pieces that exist.
If the last piece is missing, loading fails because of the shape. If a piece before the last one is
missing, loading succeeds, and the values of this piece remain as they were before.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from trainkit import tensorfile
from trainkit.statefile import Array, Foreign, FormError, copied
from trainkit.tensorfile import FOREIGN, Entry, Source, storage

Shape = tuple[int, ...]

PLACES = "pieces"  # the key in the metadata
BLOCK = 1 << 22  # bytes to read at a time


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of an array that one rank holds.

    Attributes:
        array: the values of the part.
        whole: the shape of the whole array.
        offsets: index of the first element of the part in each dimension.
        owned: whether this rank writes the part; exactly one of the ranks that hold the part writes
            it.
    """

    array: Array | Foreign
    whole: Shape
    offsets: Shape
    owned: bool = True


class File(TypedDict):
    """The name, size in bytes and SHA-256 of a file that contains pieces of arrays."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class _Part:
    path: Path
    start: int
    offsets: Shape
    shape: Shape


@dataclass(frozen=True)
class Stored:
    """An array that is stored in piece files; its values are read only when they are needed.

    Attributes:
        shape: the shape of the whole array.
        dtype: the name of the type of the elements.
        parts: file and position of each part of the array.
    """

    shape: Shape
    dtype: str
    parts: tuple[_Part, ...]

    def read(self, offsets: Shape | None = None, shape: Shape | None = None) -> Array | Foreign:
        """Return the sub-array of `shape` that begins at `offsets`; default: the whole array."""
        offsets = offsets or (0,) * len(self.shape)
        shape = self.shape if shape is None else shape
        kind = storage(self.dtype)
        found = np.empty(shape, kind)
        for part in self.parts:
            first = [max(a, b) for a, b in zip(offsets, part.offsets, strict=True)]
            ends = [min(a + n, b + m) for a, n, b, m in
                    zip(offsets, shape, part.offsets, part.shape, strict=True)]
            if any(low >= high for low, high in zip(first, ends, strict=True)):
                continue
            source = np.memmap(part.path, kind, "r", part.start, part.shape or (1,))
            found[_range(first, ends, offsets)] = (
                source.reshape(part.shape)[_range(first, ends, part.offsets)]
            )
        return Foreign(found, self.dtype) if self.dtype in FOREIGN else found


def _range(first: Sequence[int], ends: Sequence[int], offsets: Shape) -> tuple[slice, ...]:
    triples = zip(first, ends, offsets, strict=True)
    return tuple(slice(low - start, high - start) for low, high, start in triples)


def split(state: Any, name: str = "") -> tuple[Any, dict[str, Piece]]:
    """Return a state without its pieces of distributed arrays, and a dict of these pieces.

    The name of a piece in the dict consists of the state's keys that lead to it, separated by `/`.
    """
    if not isinstance(state, Mapping):
        return state, {}
    rest, pieces = {}, {}
    for key, value in state.items():
        where = f"{name}/{key}" if name else str(key)
        if isinstance(value, Piece):
            pieces[where] = value
        else:
            rest[key], found = split(value, where)
            pieces |= found
    return rest, pieces


def owned(pieces: Mapping[str, Piece]) -> dict[str, Piece]:
    """Return copies of those `pieces` that this rank writes; other ranks write the rest."""
    return {
        name: replace(piece, array=copied(piece.array))
        for name, piece in pieces.items() if piece.owned
    }


def nbytes(pieces: Mapping[str, Piece]) -> int:
    """Return the size of the pieces that this rank writes, in bytes."""
    return sum(piece.array.nbytes for piece in pieces.values() if piece.owned)


def write(path: Path, pieces: Mapping[str, Piece]) -> File:
    """Write pieces to the new file `path`, atomically; return its size and checksum.

    Raises:
        OSError: the file cannot be written.
    """
    places = {name: [piece.whole, piece.offsets] for name, piece in pieces.items()}
    size, sha256 = tensorfile.write(
        path, {name: Source.of(piece.array) for name, piece in pieces.items()},
        {PLACES: json.dumps(places)},
    )
    return {"name": path.name, "bytes": size, "sha256": sha256}


def of_file(path: Path) -> dict[str, Stored]:
    """Return the arrays of a file that another program wrote; the file must contain whole arrays.

    Raises:
        FormError: the file cannot be read, or has another format.
    """
    try:
        with path.open("rb") as file:
            _, entries = tensorfile.read(path, file)
    except OSError as error:
        raise FormError(f"{path} cannot be read: {error.strerror}") from error
    return {
        name: Stored(entry.shape, entry.dtype, (
            _Part(path, entry.start, (0,) * len(entry.shape), entry.shape),
        ))
        for name, entry in entries.items()
    }


def stored(folder: Path, files: Sequence[File]) -> dict[str, Stored]:
    """Return all arrays in the files of `folder` by name, after verification of every byte.

    Raises:
        FormError: a file is missing or damaged, or an array is incomplete.
    """
    with ThreadPoolExecutor(min(len(files), len(os.sched_getaffinity(0))) or 1) as pool:
        found = list(pool.map(lambda file: _verified(folder / file["name"], file), files))
    arrays: dict[str, Stored] = {}
    for name, whole, dtype, part in (entry for entries in found for entry in entries):
        before = arrays.get(name, Stored(whole, dtype, ()))
        if (before.shape, before.dtype) != (whole, dtype):
            raise FormError(f"{folder} has pieces of {name} with different shapes or types")
        arrays[name] = replace(before, parts=(*before.parts, part))
    for name, array in arrays.items():
        if sum(math.prod(part.shape) for part in array.parts) != math.prod(array.shape):
            raise FormError(f"{folder} does not have all pieces of {name}")
    return arrays


def _verified(path: Path, file: File) -> list[tuple[str, Shape, str, _Part]]:
    """Verify the file `path`; return the name, whole shape, type and position of each piece."""
    try:
        size = path.stat().st_size
        if size != file["bytes"]:
            raise FormError(f"{path} has {size} bytes instead of {file['bytes']}")
        with path.open("rb") as content:
            total = hashlib.sha256()
            while block := content.read(BLOCK):
                total.update(block)
            if total.hexdigest() != file["sha256"]:
                raise FormError(f"the content of {path} does not match its checksum")
            metadata, entries = tensorfile.read(path, content)
        return list(_entries(path, json.loads(metadata[PLACES]), entries))
    except OSError as error:
        raise FormError(f"{path} cannot be read: {error.strerror}") from error
    except (KeyError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise FormError(f"{path} is not a file of pieces: {error}") from error


def _entries(
    path: Path, places: Mapping[str, Any], entries: Mapping[str, Entry]
) -> Iterable[tuple[str, Shape, str, _Part]]:
    for name, entry in entries.items():
        whole, offsets = map(tuple, places[name])
        inside = all(
            0 <= low <= low + count <= most
            for low, count, most in zip(offsets, entry.shape, whole, strict=True)
        )
        if not inside:
            raise FormError(f"{path}: the place of {name} is impossible")
        yield name, whole, entry.dtype, _Part(path, entry.start, offsets, entry.shape)
