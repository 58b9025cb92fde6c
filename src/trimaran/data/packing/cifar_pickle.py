"""Read a file of CIFAR-10 in Python's pickle format without executing the pickle.

A pickle is a program: `pickle.load` imports and calls any function that the file names. This module
decodes the operations with the tables of `pickletools`, and interprets only the operations that a
batch needs. It never imports or calls a function that the file names.

Each file contains one batch of images. A batch is a dictionary that Python 2 wrote in protocol 2:
`labels` is a list of classes, and `data` is a NumPy array of unsigned bytes. The array has one row
of 3,072 values for each image: 1,024 red, 1,024 green and 1,024 blue values, row by row. Further
entries, such as the names of the images, are ignored
(https://www.cs.toronto.edu/~kriz/cifar.html, section "Dataset layout").
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CLASSES = 10
PIXELS = 3 * 32 * 32
"""Number of values of an image: 3 channels of 32x32 pixels."""

LARGEST = 1 << 25
"""Maximum size of a batch in bytes; a published batch has about 31,035,000 bytes."""

_OPERATIONS = 100_000
"""Maximum number of operations in a pickle file; a batch of 10,000 images needs about 30,000."""

_PROTOCOL = 2


class NotABatchError(ValueError):
    """The error that a file is not a batch of CIFAR-10 in Python's pickle format."""


@dataclass(frozen=True)
class _Global:
    """The name of a function or class to which the pickle refers; it is never imported."""

    name: str


_RECONSTRUCT = _Global("numpy.core.multiarray _reconstruct")
_NDARRAY = _Global("numpy ndarray")
_DTYPE = _Global("numpy dtype")
_KNOWN = {one.name: one for one in (_RECONSTRUCT, _NDARRAY, _DTYPE)}


class _Bytes:
    """A stand-in for NumPy's data type of unsigned bytes."""


@dataclass
class _Array:
    """A stand-in for a NumPy array of unsigned bytes; it is empty until the pickle fills it."""

    rows: int = 0
    columns: int = 0
    by_columns: bool = False
    values: bytes = b""

    def row(self, number: int) -> bytes:
        """Return the bytes of the row `number`."""
        if self.by_columns:
            return self.values[number :: self.rows]
        return self.values[number * self.columns : (number + 1) * self.columns]


def records(content: bytes) -> bytes:
    """Convert the pickle `content` to the binary format, and return the bytes.

    The binary format has a record of 3,073 bytes for each image: its class and its pixels.

    Raises:
        NotABatchError: `content` is not a batch of CIFAR-10; the message names the fault.
    """
    if len(content) > LARGEST:
        raise NotABatchError(f"it is larger than {LARGEST:,} bytes")
    batch = _Interpreter().run(content)
    if not isinstance(batch, dict):
        raise NotABatchError("it contains no dictionary")
    labels, data = batch.get(b"labels"), batch.get(b"data")
    if not isinstance(labels, list) or not isinstance(data, _Array):
        raise NotABatchError("the list 'labels' or the array 'data' is missing")
    if data.columns != PIXELS:
        raise NotABatchError(f"its rows have {data.columns:,} values, not {PIXELS:,}")
    if not labels or len(labels) != data.rows:
        raise NotABatchError(f"it has {len(labels):,} labels and {data.rows:,} images")
    for number, label in enumerate(labels):
        if type(label) is not int or not 0 <= label < CLASSES:
            raise NotABatchError(f"the label of image {number} is not a class from 0 to"
                                 f" {CLASSES - 1}")
    return b"".join(
        part for number, label in enumerate(labels) for part in (bytes([label]), data.row(number))
    )


class _Interpreter:
    """A stack machine for the pickle operations that a CIFAR-10 batch needs.

    As in Python's `pickle`, the operation `MARK` saves the stack and starts an empty stack. A later
    operation combines all values of the new stack, and restores the saved stack.
    """

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.aside: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self, content: bytes) -> Any:
        """Execute the operations of the pickle `content`, and return the object that they build.

        Raises:
            NotABatchError: the pickle is incomplete, or has an operation that a batch does not
                need.
        """
        name, at, stream = "", 0, io.BytesIO(content)
        try:
            for _ in range(_OPERATIONS):
                at = stream.tell()
                operation = _operation(stream)
                name = operation.name
                if name == "STOP":
                    break
                argument = operation.arg.reader(stream) if operation.arg else None
                _ACTIONS[name](self, argument)
            else:
                raise NotABatchError(f"it has more than {_OPERATIONS:,} operations")
            result = self.stack.pop()
        except NotABatchError as error:
            raise NotABatchError(f"byte {at:,}: {error}") from error
        except (IndexError, KeyError) as error:
            raise NotABatchError(f"byte {at:,}: the operation {name} lacks its operand") from error
        except ValueError as error:  # of pickletools
            raise NotABatchError(f"byte {at:,}: {str(error)[:200]}") from error
        if self.stack or self.aside or stream.tell() != len(content):
            raise NotABatchError(f"byte {at:,}: it does not end with one dictionary")
        return result

    def protocol(self, version: int) -> None:
        """Check that the pickle has the protocol version 2."""
        if version != _PROTOCOL:
            raise NotABatchError(f"it has the protocol {version}, not {_PROTOCOL}")

    def push(self, value: Any) -> None:
        """Push a value on the stack, after converting a string to bytes (Latin-1)."""
        self.stack.append(value.encode("latin-1") if isinstance(value, str) else value)

    def mark(self, _: Any) -> None:
        """Save the stack, and start an empty stack."""
        self.aside.append(self.stack)
        self.stack = []

    def taken(self) -> list[Any]:
        """Return all values of the current stack, and restore the stack that `mark` saved last."""
        values, self.stack = self.stack, self.aside.pop()
        return values

    def tuple_of(self, count: int) -> None:
        """Replace the last `count` values of the stack by one tuple of these values."""
        self.push(tuple([self.stack.pop() for _ in range(count)][::-1]))

    def extend(self, values: list[Any]) -> None:
        """Append values to the list on top of the stack."""
        if not isinstance(self.stack[-1], list):
            raise NotABatchError("it appends values to what is no list")
        self.stack[-1].extend(values)

    def update(self, values: list[Any]) -> None:
        """Add keys and values to the dictionary on top of the stack.

        `values` contains each key, followed by its value.
        """
        keys = values[::2]
        if not isinstance(self.stack[-1], dict) or len(values) % 2:
            raise NotABatchError("it sets a key in what is no dictionary")
        if not all(isinstance(key, bytes) for key in keys):
            raise NotABatchError("a key is not a string")
        self.stack[-1].update(zip(keys, values[1::2], strict=True))

    def remember(self, number: int) -> None:
        """Store the value on top of the stack in the memo, under the key `number`."""
        self.memo[number] = self.stack[-1]

    def refer(self, name: str) -> None:
        """Push a function or class on the stack; reject names that no CIFAR-10 batch contains."""
        if name not in _KNOWN:
            raise NotABatchError(f"it refers to {name[:80]!r}, which is not part of a batch")
        self.push(_KNOWN[name])

    def construct(self, _: Any) -> None:
        """Execute a function call of the pickle: push an empty array, or the data type of an array.

        All other calls are rejected.
        """
        arguments, function = self.stack.pop(), self.stack.pop()
        if function is _RECONSTRUCT and arguments == (_NDARRAY, (0,), b"b"):
            self.push(_Array())
        elif function is _DTYPE and arguments == (b"u1", 0, 1):
            self.push(_Bytes())
        else:
            raise NotABatchError("it constructs something else than an array of unsigned bytes")

    def set_state(self, _: Any) -> None:
        """Set the shape and the values of an array.

        The state of a data type is ignored, because it contains only the byte order.
        """
        state, of = self.stack.pop(), self.stack[-1]
        if isinstance(of, _Bytes):
            return
        if not isinstance(of, _Array) or not isinstance(state, tuple) or len(state) != 5:
            raise NotABatchError("it sets the state of something else than an array")
        version, shape, kind, by_columns, values = state
        if not (
            version == 1 and isinstance(kind, _Bytes) and isinstance(values, bytes)
            and isinstance(by_columns, bool) and isinstance(shape, tuple) and len(shape) == 2
            and all(type(side) is int and side > 0 for side in shape)
            and shape[0] * shape[1] == len(values)
        ):
            raise NotABatchError("its array is not a table of unsigned bytes, or is incomplete")
        of.rows, of.columns, of.by_columns, of.values = *shape, by_columns, values


def _operation(stream: io.BytesIO) -> pickletools.OpcodeInfo:
    """Read and return the next operation of the pickle, without its argument.

    Raises:
        NotABatchError: the content ends, or the operation does not occur in a CIFAR-10 batch.
    """
    code = stream.read(1).decode("latin-1")
    if not code:
        raise NotABatchError("the pickle is incomplete")
    operation = _KNOWN_OPERATIONS.get(code)
    if operation is None or (operation.name not in _ACTIONS and operation.name != "STOP"):
        name = f"{ord(code):#04x}" if operation is None else operation.name
        raise NotABatchError(f"the operation {name} is not part of a batch")
    return operation


_KNOWN_OPERATIONS = {operation.code: operation for operation in pickletools.opcodes}
"""A dictionary that maps the code of each pickle operation to its description."""

_ACTIONS: dict[str, Callable[[_Interpreter, Any], None]] = {
    "PROTO": _Interpreter.protocol,
    "NONE": _Interpreter.push,
    "NEWTRUE": lambda on, _: on.push(True),
    "NEWFALSE": lambda on, _: on.push(False),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING"),
                    _Interpreter.push),
    "EMPTY_LIST": lambda on, _: on.push([]),
    "EMPTY_DICT": lambda on, _: on.push({}),
    "MARK": _Interpreter.mark,
    "TUPLE": lambda on, _: on.push(tuple(on.taken())),
    "TUPLE1": lambda on, _: on.tuple_of(1),
    "TUPLE2": lambda on, _: on.tuple_of(2),
    "TUPLE3": lambda on, _: on.tuple_of(3),
    "APPEND": lambda on, _: on.extend([on.stack.pop()]),
    "APPENDS": lambda on, _: on.extend(on.taken()),
    "SETITEM": lambda on, _: on.update([on.stack.pop(), on.stack.pop()][::-1]),
    "SETITEMS": lambda on, _: on.update(on.taken()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Interpreter.remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda on, number: on.push(on.memo[number])),
    "GLOBAL": _Interpreter.refer,
    "REDUCE": _Interpreter.construct,
    "BUILD": _Interpreter.set_state,
}
"""A dictionary that maps the name of each allowed operation to the function that executes it.

The function takes the interpreter and the argument of the operation.
"""
