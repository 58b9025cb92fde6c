"""Arrays that are distributed over ranks: each rank writes its pieces, and can read any range.

The files have the format of safetensors (https://github.com/huggingface/safetensors): the length of
a header, the header in JSON, and the bytes of the arrays. The entry `__metadata__` of the header
has the shape of each whole array and the position of the piece in it, as text. Nothing in such a
file is executed.

PyTorch can store sharded states in such files, too (`torch.distributed.checkpoint`, class
`HuggingFaceStorageWriter`). It is not used, because its reader does not verify the content. The
reader does not notice a missing file, either: it computes the shape of an array from the pieces
that exist.
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

from trainkit import atomic
from trainkit.statefile import Array, Foreign, FormError, copied

Shape = tuple[int, ...]

TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32",
    "F64": "float64", "BF16": "bfloat16",
}
"""Name of a type in safetensors -> its name in NumPy, or in PyTorch if NumPy lacks it."""
FOREIGN = {"bfloat16": "uint16"}  # types that NumPy lacks -> integers of the same width
PLACES = "pieces"  # key in `__metadata__` of the shapes and positions
BLOCK = 1 << 22  # bytes to read at a time
LARGEST_HEADER = 100_000_000  # bytes; the same limit as in the library safetensors


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of an array, as one rank holds it.

    Attributes:
        array: the values of the part.
        whole: the shape of the whole array.
        offsets: index of the first element of the part in each dimension.
        owned: whether this rank writes the part; exactly one of the ranks that hold it does.
    """

    array: Array | Foreign
    whole: Shape
    offsets: Shape
    owned: bool = True


class File(TypedDict):
    """The name, size in bytes and SHA-256 of a file of pieces."""

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
    """An array in files of pieces, which is read when it is needed.

    Attributes:
        shape: the shape of the whole array.
        dtype: the name of its type.
        parts: file and position of each part of the array.
    """

    shape: Shape
    dtype: str
    parts: tuple[_Part, ...]

    def read(self, offsets: Shape | None = None, shape: Shape | None = None) -> Array | Foreign:
        """Return the part of shape `shape` that begins at `offsets`; by default the whole array."""
        offsets = offsets or (0,) * len(self.shape)
        shape = self.shape if shape is None else shape
        kind = np.dtype(FOREIGN.get(self.dtype, self.dtype))
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
    """Return a state without its pieces, and the pieces by their names.

    The name of a piece consists of the keys that lead to it, separated by `/`.
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
    """Return copies of the pieces that this rank writes."""
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
    header, start = {}, 0
    for name, piece in pieces.items():
        kind, size = _type(piece.array), piece.array.nbytes
        header[name] = {
            "dtype": kind, "shape": list(_bits(piece.array).shape),
            "data_offsets": [start, start + size],
        }
        start += size
    places = {name: [piece.whole, piece.offsets] for name, piece in pieces.items()}
    text = json.dumps({"__metadata__": {PLACES: json.dumps(places)}, **header}).encode()
    text += b" " * (-len(text) % 8)  # aligns the arrays to 8 bytes, as the library safetensors does
    total = hashlib.sha256()
    with atomic.replacing(path) as file:
        for block in (len(text).to_bytes(8, "little"), text, *map(_bytes, pieces.values())):
            total.update(block)
            file.write(block)
    return {"name": path.name, "bytes": 8 + len(text) + start, "sha256": total.hexdigest()}


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
    """Verify the file `path`; return name, whole shape, type and place of each of its pieces."""
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
            content.seek(0)
            length = int.from_bytes(content.read(8), "little")
            if length > min(size - 8, LARGEST_HEADER):
                raise FormError(f"{path} has a header of {length} bytes")
            header = json.loads(content.read(length))
        return list(_entries(path, header, 8 + length, size))
    except OSError as error:
        raise FormError(f"{path} cannot be read: {error.strerror}") from error
    except (KeyError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise FormError(f"{path} is not a file of pieces: {error}") from error


def _entries(
    path: Path, header: Mapping[str, Any], first: int, size: int
) -> Iterable[tuple[str, Shape, str, _Part]]:
    places = json.loads(header["__metadata__"][PLACES])
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        whole, offsets = map(tuple, places[name])
        dtype, shape = TYPES[entry["dtype"]], tuple(entry["shape"])
        start, end = entry["data_offsets"]
        width = np.dtype(FOREIGN.get(dtype, dtype)).itemsize
        inside = all(
            0 <= low <= low + count <= most
            for low, count, most in zip(offsets, shape, whole, strict=True)
        )
        if not inside or end - start != math.prod(shape) * width or not 0 <= start <= end <= \
                size - first:
            raise FormError(f"{path}: the place of {name} is impossible")
        yield name, whole, dtype, _Part(path, first + start, offsets, shape)


def _bits(array: Array | Foreign) -> Array:
    return array.bits if isinstance(array, Foreign) else array


def _bytes(piece: Piece) -> memoryview[int] | bytes:
    bits = np.ascontiguousarray(_bits(piece.array))
    return bits.reshape(-1).view(np.uint8).data if bits.size else b""


def _type(array: Array | Foreign) -> str:
    """Return the name of the type of an array in safetensors."""
    name = array.dtype if isinstance(array, Foreign) else array.dtype.name
    for known, own in TYPES.items():
        if own == name:
            return known
    raise FormError(f"an array of {name} cannot be stored in pieces")
