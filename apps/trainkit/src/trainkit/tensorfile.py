"""Files of tensors in the format of safetensors, which many programs read and write.

A file consists of the length of the header, the header in JSON, and the bytes of the tensors
(https://github.com/huggingface/safetensors). The entry `__metadata__` of the header contains texts.
Nothing in such a file is executed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from trainkit import atomic
from trainkit.statefile import Array, Foreign, FormError

Shape = tuple[int, ...]

TYPES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "U16": "uint16", "I32": "int32",
    "U32": "uint32", "I64": "int64", "U64": "uint64", "F16": "float16", "F32": "float32",
    "F64": "float64", "BF16": "bfloat16",
}
"""Name of a type in safetensors -> its name in NumPy, or in PyTorch if NumPy has no such type."""
FOREIGN = {"bfloat16": "uint16"}  # types that NumPy lacks -> integers of the same width
METADATA = "__metadata__"
LARGEST_HEADER = 100_000_000  # bytes; the same limit as in the library safetensors


@dataclass(frozen=True)
class Entry:
    """A tensor in a file.

    Attributes:
        dtype: the name of the type of the elements in NumPy or PyTorch.
        shape: shape of the tensor.
        start: position of the first byte of the tensor in the file.
    """

    dtype: str
    shape: Shape
    start: int


@dataclass(frozen=True)
class Source:
    """A tensor that is to be written.

    Attributes:
        dtype: the name of the type of the elements in NumPy or PyTorch.
        shape: shape of the tensor.
        values: function that returns the values of the tensor, called when the tensor is written.
    """

    dtype: str
    shape: Shape
    values: Callable[[], Array | Foreign]

    @classmethod
    def of(cls, array: Array | Foreign) -> Source:
        """Return a source for `array`, whose values are in memory."""
        dtype = array.dtype if isinstance(array, Foreign) else array.dtype.name
        return cls(dtype, bits(array).shape, lambda: array)

    @property
    def nbytes(self) -> int:
        """The size of the tensor in bytes."""
        return math.prod(self.shape) * storage(self.dtype).itemsize


def storage(dtype: str) -> np.dtype[Any]:
    """Return the NumPy type that stores values of the type `dtype`."""
    return np.dtype(FOREIGN.get(dtype, dtype))


def bits(array: Array | Foreign) -> Array:
    """Return `array` unchanged, or the integers that store its bits if NumPy lacks its type."""
    return array.bits if isinstance(array, Foreign) else array


def write(
    path: Path, tensors: Mapping[str, Source], metadata: Mapping[str, str]
) -> tuple[int, str]:
    """Write tensors to `path`, atomically; return the size in bytes and the SHA-256 of the file.

    Raises:
        FormError: the format does not support the type of a tensor.
        OSError: the file cannot be written.
    """
    header: dict[str, Any] = {METADATA: dict(metadata)}
    start = 0
    for name, tensor in tensors.items():
        place = [start, start + tensor.nbytes]
        header[name] = {
            "dtype": _type(tensor.dtype), "shape": list(tensor.shape), "data_offsets": place
        }
        start += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the tensors are aligned to 8 bytes, as in the library
    total = hashlib.sha256()
    with atomic.replacing(path) as file:
        def put(block: bytes | memoryview[int]) -> None:
            total.update(block)
            file.write(block)

        put(len(text).to_bytes(8, "little"))
        put(text)
        for tensor in tensors.values():
            put(_bytes(bits(tensor.values())))
    return 8 + len(text) + start, total.hexdigest()


def read(path: Path, file: IO[bytes]) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Return the metadata and the tensors in the header of a file, after a check of each entry.

    Args:
        path: path of the file, for messages.
        file: the open file.

    Raises:
        FormError: the header is not in this format, or a tensor is not inside the file.
    """
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    if length > min(size - 8, LARGEST_HEADER):
        raise FormError(f"{path} has a header of {length} bytes")
    try:
        header = json.loads(file.read(length))
        metadata = dict(header.pop(METADATA, None) or {})
        found = {name: _entry(entry, 8 + length, size) for name, entry in header.items()}
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise FormError(f"{path} is not a file of tensors: {error}") from error
    return metadata, found


def _entry(entry: Mapping[str, Any], first: int, size: int) -> Entry:
    dtype, shape = TYPES[entry["dtype"]], tuple(entry["shape"])
    start, end = entry["data_offsets"]
    if not all(isinstance(number, int) and number >= 0 for number in (*shape, start, end)):
        raise ValueError("a shape or a position is not a whole number of at least 0")
    if end - start != math.prod(shape) * storage(dtype).itemsize or end > size - first:
        raise ValueError(f"a tensor of the shape {shape} is at the bytes {start} to {end} of "
                         f"{size - first}")
    return Entry(dtype, shape, first + start)


def _bytes(array: Array) -> memoryview[int] | bytes:
    whole = np.ascontiguousarray(array)
    return whole.reshape(-1).view(np.uint8).data if whole.size else b""


def _type(dtype: str) -> str:
    """Return the name that safetensors uses for the type `dtype`."""
    for known, own in TYPES.items():
        if own == dtype:
            return known
    raise FormError(f"an array of {dtype} cannot be stored in this format")
