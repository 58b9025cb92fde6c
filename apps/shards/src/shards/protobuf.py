"""The subset of Protocol Buffers that the records of shards need.

Encoding: https://protobuf.dev/programming-guides/encoding. A message is a sequence of fields, each
with a key (number and wire type) and a value. Google's library would copy each image from the
mapped shard; this module returns views.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types


def varint(value: int) -> bytes:
    """Return `value` >= 0 as a varint: seven bits per byte, the lowest bits first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def encoded(number: int, value: int | bytes) -> bytes:
    """Return one encoded field: a varint, or bytes (a string, a message, packed numbers)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (field number, value): a varint as int, any other value as a view of its bytes.

    Raises:
        ValueError: the bytes are not a message.
    """
    at, end = 0, len(message)
    while at < end:
        tag = message[at]
        if tag < 0x80:  # nearly all tags have one byte: avoid a call
            at += 1
        else:
            tag, at = read_varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == BYTES:
            size, at = read_varint(message, at)
        elif kind == VARINT:
            value, at = read_varint(message, at)
            yield number, value
            continue
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
        else:
            raise ValueError(f"field {number} is of the unknown wire type {kind}")
        if at + size > end:
            raise ValueError(f"field {number} ends beyond its message")
        yield number, message[at : at + size]
        at += size


def field(message: memoryview, number: int) -> memoryview | None:
    """Return the bytes of the last field with this number, or None if there is none.

    Raises:
        ValueError: the field is a varint, or the bytes are not a message.
    """
    found = None
    for key, value in fields(message):
        if key == number:
            if isinstance(value, int):
                raise ValueError(f"field {number} is a number")
            found = value
    return found


def read_varint(message: memoryview, at: int) -> tuple[int, int]:
    """Return the varint at byte `at`, and the position of its end.

    Raises:
        ValueError: the varint does not end within the message or within ten bytes.
    """
    length = len(message)
    value = shift = 0
    while at < length and shift < 64:  # ten bytes hold 64 bits
        byte = message[at]
        at += 1
        if byte < 0x80:  # the highest bit is set if more bytes follow
            return value | byte << shift, at
        value |= (byte & 0x7F) << shift
        shift += 7
    raise ValueError("a number without end")


def varints(packed: memoryview) -> Iterator[int]:
    """Yield the varints of a packed field, which contains them one after the other."""
    at = 0
    while at < len(packed):
        value, at = read_varint(packed, at)
        yield value


def signed(value: int) -> int:
    """Return a varint as a signed int64; an int32 has the same encoding."""
    return value - (1 << 64) if value >> 63 else value
