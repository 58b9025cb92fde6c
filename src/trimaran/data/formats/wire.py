"""The wire format of protocol buffers, as far as two small messages need it.

https://protobuf.dev/programming-guides/encoding: a message is a row of fields, each a key
(number and kind) and a value: a varint (kind 0) or counted bytes (kind 2).
"""

from __future__ import annotations

from collections.abc import Iterator

_FIXED = {1: 8, 5: 4}  # sizes of the kinds that are only skipped


def varint(value: int) -> bytes:
    """Return `value` >= 0, seven bits a byte, the lowest first."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def field(number: int, value: int | bytes) -> bytes:
    """Return one field: a varint, or bytes (a text, a message, packed numbers)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field that is a varint or bytes.

    Raises:
        ValueError: `message` is cut off or no message.
    """
    at = 0
    while at < len(message):
        key, at = read_varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = read_varint(message, at)
            yield number, value
            continue
        if kind == 2:
            size, at = read_varint(message, at)
        elif kind in _FIXED:
            size = _FIXED[kind]
        else:
            raise ValueError(f"field {number} is of the unknown kind {kind}")
        if at + size > len(message):
            raise ValueError(f"field {number} is cut off")
        if kind == 2:
            yield number, message[at : at + size]
        at += size


def read_varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the varint at `at` and the position after it.

    Raises:
        ValueError: it does not end within the message or ten bytes.
    """
    value = 0
    for shift, byte in enumerate(message[at : at + 10]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, at + shift + 1
    raise ValueError(f"no number at byte {at}")
