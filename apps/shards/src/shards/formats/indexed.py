"""The base of formats with a text index that has one line for each record.

`scan` is for TFRecord and RecordIO, whose records are stored without gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

from shards.files import synced
from shards.formats.records import Read
from shards.kinds import Kind


class IndexedWriter:
    """A writer of the shard `STEM` + `suffix` and of its index `STEM.idx`."""

    suffix: ClassVar[str]

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None:
        self.kind = kind
        self.file, self.index = f"{stem}{self.suffix}", f"{stem}.idx"
        self._folder = folder
        self._out = (folder / self.file).open("wb")
        self._lines: list[str] = []

    def append(self, content: bytes, line: Callable[[int], str]) -> None:
        """Append a record and its index line, which `line` computes from the record's position."""
        self._lines.append(f"{line(self._out.tell())}\n")
        self._out.write(content)

    def finish(self) -> None:
        """Complete the shard, write its index, and flush both to disk."""
        self.close()
        (self._folder / self.index).write_text("".join(self._lines), encoding="utf-8")
        for name in (self.file, self.index):
            synced(self._folder / name)

    def close(self) -> None:
        """Close the shard."""
        self._out.close()


def scan(
    path: Path,
    index: Path | None,
    record: Callable[[BinaryIO], Read | None],
    line: Callable[[Read, int, int], str],
) -> Iterator[Read | str]:
    """Yield every record of a shard, and faults of the shard or index as text.

    Args:
        path: the shard.
        index: index of the shard; None to skip the comparison with the index.
        record: function that reads the record at the file position, or returns None if the end of
            the record cannot be determined.
        line: function that returns the line that the index must have for a record. Its arguments
            are the record, its byte position and its size in bytes.
    """
    lines = index.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if index else []
    with path.open("rb") as file:
        size, count = path.stat().st_size, 0
        while (start := file.tell()) < size:
            found = record(file)
            if found is None:
                yield (f"is cut off or damaged in record {count}, at byte {start:,}:"
                       " no record behind it is found")
                return
            wanted = line(found, start, file.tell() - start)
            if index and lines[count : count + 1] != [wanted]:
                found = Read(found.name, fault=f"is not where index {index.name} says")
            yield found
            count += 1
    if index and len(lines) != count:
        yield f"index {index.name} has {len(lines):,} lines for {count:,} records"
