"""Read tensors from a PyTorch file without PyTorch, and without executing code in the file.

The format is the one that `torch.save` used before PyTorch 1.6, as in torchvision's older weights:
five pickles (magic number, version, system, object, keys of the storages), then each storage,
preceded by its number of values (int64). A pickle can call any function by its name. Therefore this
reader accepts only the four names that it needs, and calls harmless functions instead.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trainkit.exits import DataError

MAGIC = 0x1950A86A20F9469CFC6C
TYPES = {"FloatStorage": np.float32, "LongStorage": np.int64}


class _Tensor:
    """A tensor whose values have not been read yet."""

    def __init__(self, storage: Any, offset: int, shape: Any, stride: Any, *rest: Any) -> None:
        self.key, self.offset, self.shape, self.stride = storage, offset, shape, stride


class _TensorUnpickler(pickle.Unpickler):
    """A reader of tensor descriptions that raises an error for everything else."""

    storages: dict[str, tuple[Any, int]]

    def find_class(self, module: str, name: str) -> Any:
        """Return the harmless substitute for `module.name`, or raise UnpicklingError."""
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _Tensor
        if module == "torch" and name in TYPES:
            return name
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """Return the key of a storage, and record its type and size."""
        _, kind, key, _, count, *_ = pid
        self.storages[key] = TYPES[kind], int(count)
        return key


def read(path: Path) -> dict[str, NDArray[Any]]:
    """Return the tensors in the file, by name.

    Raises:
        DataError: the file has another format, or is damaged.
    """
    try:
        with path.open("rb") as file:
            return _read(file)
    except DataError as error:
        raise DataError(f"{path}: {error}", code="weights-damaged") from None
    except (OSError, pickle.UnpicklingError, EOFError, ValueError, TypeError, KeyError, IndexError,
            AttributeError, MemoryError, OverflowError) as error:
        raise DataError(
            f"{path} is not a checkpoint in PyTorch's format before version 1.6: {error}",
            code="weights-damaged",
        ) from error


def _read(file: IO[bytes]) -> dict[str, NDArray[Any]]:
    def load() -> Any:
        unpickler = _TensorUnpickler(file)
        unpickler.storages = storages
        return unpickler.load()

    storages: dict[str, tuple[Any, int]] = {}
    if load() != MAGIC:
        raise DataError("torch.save did not write it (its magic number differs)",
                        code="weights-damaged")
    load(), load()
    state, keys = load(), load()
    values: dict[str, NDArray[Any]] = {}
    for key in keys:
        kind, count = storages[key]
        header = np.frombuffer(file.read(8), np.int64)
        size = count * np.dtype(kind).itemsize
        content = file.read(size)
        if len(header) != 1 or header[0] != count or len(content) != size:
            raise DataError("a storage is cut short", code="weights-damaged")
        values[key] = np.frombuffer(content, kind)
    return {name: _as_array(tensor, values[tensor.key]) for name, tensor in state.items()}


def _as_array(tensor: _Tensor, values: NDArray[Any]) -> NDArray[Any]:
    count = int(np.prod(tensor.shape, dtype=np.int64))
    contiguous = tuple(int(np.prod(tensor.shape[at + 1 :])) for at in range(len(tensor.shape)))
    if tuple(tensor.stride) != contiguous or not 0 <= tensor.offset <= len(values) - count:
        raise DataError("a tensor that does not lie in one piece", code="weights-damaged")
    found: NDArray[Any] = values[tensor.offset : tensor.offset + count].reshape(tensor.shape)
    return found
