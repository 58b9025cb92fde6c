"""The format of a checkpoint file, for any framework: a zip file of a JSON tree and arrays.

    state.json   the tree, which refers to arrays by their number
    0.npy …      NumPy's own format, never with pickled objects

`numpy.load` reads the file, too. Values that JSON lacks, such as arrays, tuples, infinity, or dicts
whose keys are not strings, are JSON objects whose first key begins with `$` (`_FORMS`). Nothing is
compressed, so that the content cannot be larger than the file. Every entry has a CRC-32, and
reading verifies all of them. Nothing in the file is executed.
"""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

TREE = "state.json"
LARGEST_TREE = 1 << 26  # size in bytes, enough for a network of a million layers
KINDS = "biufc"  # NumPy's codes of booleans, integers, real and complex numbers

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Foreign:
    """An array of a type that NumPy lacks, stored as integers of the same width.

    Attributes:
        bits: the array as unsigned integers.
        dtype: name of the type of the array, such as bfloat16.
    """

    bits: Array
    dtype: str

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return self.bits.nbytes


class FormError(Exception):
    """Error for a file that is not a checkpoint, or for a state that no checkpoint can store."""


def write(state: Mapping[str, Any], file: IO[bytes]) -> None:
    """Write `state` to a file.

    Args:
        state: nested dicts, lists and tuples of strings, numbers, None, arrays and `Foreign`s.
        file: binary file to write to.

    Raises:
        FormError: the state has a value of another type; the message has its position.
    """
    arrays: list[Array] = []
    tree = json.dumps(_encoded(state, "", arrays), allow_nan=False).encode()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(zipfile.ZipInfo(TREE), tree)
        for number, array in enumerate(arrays):
            info = zipfile.ZipInfo(f"{number}.npy")
            with archive.open(info, "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def read(path: Path) -> dict[str, Any]:
    """Return the state in `path`, after verification of every byte.

    Raises:
        FormError: the file has another format, or its entries are larger than the file.
        OSError, zipfile.BadZipFile, ValueError: the file cannot be read, or is damaged.
    """
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check_entries(entries, path.stat().st_size)
        tree = json.loads(archive.read(entries[0]))
        arrays = iter([_array(bytearray(archive.read(entry))) for entry in entries[1:]])
    state = _decoded(tree, arrays)
    if next(arrays, None) is not None:
        raise FormError("it has arrays that belong to nothing")
    if not isinstance(state, dict):
        raise FormError("it has no names")
    return state


def nbytes(value: Any) -> int:
    """Return the size of all arrays in a state, in bytes."""
    if isinstance(value, Mapping):
        return sum(nbytes(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(nbytes(item) for item in value)
    return value.nbytes if isinstance(value, np.ndarray | Foreign) else 0


def copied(value: Any) -> Any:
    """Return a copy of a state and its arrays, so that the training can change the originals."""
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if isinstance(value, Foreign):
        return Foreign(value.bits.copy(order="K"), value.dtype)
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value


def _encoded(value: Any, where: str, arrays: list[Array]) -> Any:
    """Return `value` as JSON; append its arrays to `arrays` in the order of the tree."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS:
        arrays.append(value)
        return {"$array": len(arrays) - 1}
    if isinstance(value, Foreign):
        arrays.append(value.bits)
        return {"$array": len(arrays) - 1, "dtype": value.dtype}
    if isinstance(value, list | tuple):
        items = [_encoded(item, f"{where}/{n}", arrays) for n, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, Mapping):
        pairs = [(key, _encoded(item, f"{where}/{key}", arrays)) for key, item in value.items()]
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return dict(pairs)
        return {"$dict": [[_encoded(key, where, arrays), item] for key, item in pairs]}
    kind = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise FormError(f"{where} is a {kind}, which a checkpoint cannot hold")


def _decoded(value: Any, arrays: Iterator[Array]) -> Any:
    """Return the value that a JSON tree encodes; `arrays` are in the order of the tree."""
    if isinstance(value, list):
        return [_decoded(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    form = next(iter(value), "")
    if not form.startswith("$"):
        return {key: _decoded(item, arrays) for key, item in value.items()}
    try:
        return _FORMS[form](value, arrays)
    except (KeyError, TypeError, StopIteration) as error:
        raise FormError(f"it has a value of an unknown form ({form})") from error


def _array_of(value: dict[str, Any], arrays: Iterator[Array]) -> Array | Foreign:
    array = next(arrays)
    return Foreign(array, str(value["dtype"])) if "dtype" in value else array


_FORMS: dict[str, Callable[[dict[str, Any], Iterator[Array]], Any]] = {
    "$array": _array_of,
    "$tuple": lambda value, arrays: tuple(_decoded(value["$tuple"], arrays)),
    "$dict": lambda value, arrays: {
        _decoded(key, arrays): _decoded(item, arrays) for key, item in value["$dict"]
    },
    "$float": lambda value, arrays: float(value["$float"]),
}


def _check_entries(entries: list[zipfile.ZipInfo], size: int) -> None:
    """Raise FormError if `write` cannot have written one of the entries; no entry is read yet."""
    names = [entry.filename for entry in entries]
    if names != [TREE, *(f"{number}.npy" for number in range(len(names) - 1))]:
        raise FormError("it has other entries than a tree and its arrays")
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise FormError("its entries are compressed, so that another program wrote it")
    if sum(entry.file_size for entry in entries) > size or entries[0].file_size > LARGEST_TREE:
        raise FormError("its entries are larger than they can be")


def _array(content: bytearray) -> Array:
    """Return the array of an `.npy` file, after checking that header and size agree."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise FormError(f"it has an array in version {version} of the format")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.kind not in KINDS or not dtype.isnative:
        raise FormError(f"it has an array of {dtype}")
    first = stream.tell()
    size = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or size != len(content) - first:
        raise FormError(f"it has an array of {len(content) - first} bytes with the shape {shape}")
    flat = np.frombuffer(content, dtype, offset=first)
    return flat.reshape(shape, order="F" if by_columns else "C")
