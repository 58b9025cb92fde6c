"""What formats with an index of their own share: the files, and a line for each record.

TFRecord and RecordIO, whose records follow each other, are scanned alike, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar

from shards.files import synced
from shards.formats.records import Read
from shards.kinds import Kind


class IndexedWriter:
    """Writes `STEM` + `suffix`, and `STEM.idx`."""

    suffix: ClassVar[str]

    def __init__(self, folder: Path, stem: str, kind: Kind) -> None:
        self.kind = kind
        self.file, self.index = f"{stem}{self.suffix}", f"{stem}.idx"
        self._folder = folder
        self._out = (folder / self.file).open("wb")
        self._lines: list[str] = []

    def append(self, content: bytes, line: Callable[[int], str]) -> None:
        """Append one record; `line` makes that of the index from its position."""
        self._lines.append(f"{line(self._out.tell())}\n")
        self._out.write(content)

    def finish(self) -> None:
        """End the shard and write its index."""
        self.close()
        (self._folder / self.index).write_text("".join(self._lines), encoding="utf-8")
        for name in (self.file, self.index):
            synced(self._folder / name)

    def close(self) -> None:
        """Let go of the open file."""
        self._out.close()


def scan(
    path: Path,
    index: Path | None,
    record: Callable[[BinaryIO], Read | None],
    line: Callable[[Read, int, int], str],
) -> Iterator[Read | str]:
    """Yield every record of a shard, and faults; compare each with its line of the index.

    Args:
        path: the shard.
        index: its index; None: do not compare.
        record: reads the record at the file's position; None where no end of it is found.
        line: makes the line of the index from a record, its position and its size.
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
