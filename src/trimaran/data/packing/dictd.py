"""Read the entries of a dictionary of dictd: NAME.index, and NAME.dict or NAME.dict.dz.

Each line of the index has a headword, the position of its entry and the size of the entry,
separated by tabs; the numbers have base 64 (manual page dictd(8), section "Database Format").
`.dict.dz` is gzip with an additional table for random access, which gzip ignores. Several headwords
may refer to one entry. Some entries describe the dictionary itself: their headwords begin with
`00-`, or with `00database` if dictfmt omitted punctuation from the index (without --allchars).
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

from trimaran.errors import RunError

DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
ENDINGS = (".dict.dz", ".dict")
ABOUT = (b"00-", b"00database")
_VALUES = {digit: value for value, digit in enumerate(DIGITS)}


def number(digits: bytes) -> int:
    """Decode a base-64 number of an index; raise KeyError if a character is not a valid digit."""
    value = 0
    for digit in digits:
        value = 64 * value + _VALUES[digit]
    return value


def dictionary(index: Path) -> Path:
    """Return the file with the entries, which is in the same folder as the index.

    Raises:
        RunError: there is no such file.
    """
    beside = [index.with_suffix(end) for end in ENDINGS]
    for path in beside:
        if path.is_file():
            return path
    raise RunError(f"{index} has no dictionary {' or '.join(path.name for path in beside)} beside"
                   " it", code="file-missing", hint="copy the dictionary into the same folder")


def entries(index: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the position and the content of each entry once, in the order of the positions.

    Raises:
        RunError: the dictionary is missing, or a line of the index is malformed or points beyond
            the end of the dictionary.
        OSError: a file cannot be read, or the compressed dictionary is damaged (BadGzipFile).
        EOFError or zlib.error: the compressed dictionary is damaged.
    """
    path = dictionary(index)
    content = path.read_bytes()
    if path.suffix == ".dz":
        content = gzip.decompress(content)
    for start, size in sorted(_places(index, len(content))):
        yield start, content[start : start + size]


def _places(index: Path, length: int) -> set[tuple[int, int]]:
    """Return the position and size in bytes of each entry.

    Entries that describe the dictionary itself are left out.

    Args:
        index: the index.
        length: size of the dictionary in bytes.
    """
    found: set[tuple[int, int]] = set()
    about: set[tuple[int, int]] = set()
    for at, line in enumerate(index.read_bytes().splitlines(), 1):
        try:
            word, start, size = line.split(b"\t")[:3]
            place = number(start), number(size)
        except (ValueError, KeyError):
            raise RunError(f"{index} line {at:,} is not a headword, a position and a size",
                           code="data-damaged", hint="download it again") from None
        if sum(place) > length:
            raise RunError(f"{index} line {at:,} leads beyond the end of the dictionary,"
                           f" {length:,} bytes", code="data-damaged", hint="download it again")
        (about if word.startswith(ABOUT) else found).add(place)
    return found - about
