"""WebDataset: a tar file with `NNNNNNNN.jpg` and `NNNNNNNN.cls` per sample, and DALI's index.

The class is written as decimal digits. Tar headers carry no time and no owner, so the
bytes depend on the samples only. Index: DALI's wds2idx, version 1.2: a line per sample
with extension, position, size and name of each of its members.
"""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

from trimaran.files import write_atomic
from trimaran.packing.records import Read, Record, synced

BLOCK = tarfile.BLOCKSIZE
INDEX_VERSION = "v1.2"
READS_DAMAGED = True
IMAGES = ("jpg", "png")


class Writer:
    """Writes `STEM.tar` and `STEM.idx`."""

    def __init__(self, folder: Path, stem: str) -> None:
        self.file, self.index = f"{stem}.tar", f"{stem}.idx"
        self._folder = folder
        self._tar = tarfile.open(  # noqa: SIM115 - close() closes it
            folder / self.file, "w", format=tarfile.USTAR_FORMAT
        )
        self._lines: list[str] = []

    def add(self, record: Record) -> None:
        """Append the members of one sample, and its line of the index."""
        members = {record.encoding: record.image, "cls": str(record.label).encode()}
        words = []
        for extension, content in members.items():
            member = tarfile.TarInfo(f"{record.key:08d}.{extension}")  # time and owner are 0
            member.size = len(content)
            words += [extension, str(self._tar.offset + BLOCK), str(len(content)), member.name]
            self._tar.addfile(member, io.BytesIO(content))
        self._lines.append(" ".join(words))

    def finish(self) -> None:
        """End the tar file and write its index."""
        self.close()
        synced(self._folder / self.file)
        lines = [f"{INDEX_VERSION} {len(self._lines)}", *self._lines]
        write_atomic(self._folder / self.index, "\n".join(lines) + "\n")

    def close(self) -> None:
        """Let go of the open file."""
        self._tar.close()


def read(path: Path, index: Path | None) -> Iterator[Read | str]:
    """Yield the record of each line of the index, as far as it points at one."""
    if index is None:
        yield "has no index, without which its records are not found"
        return
    first, *lines = index.read_text(encoding="utf-8", errors="replace").split("\n")
    lines = lines[:-1]  # after the last line's end
    if first != f"{INDEX_VERSION} {len(lines)}":
        yield f"index {index.name} has {len(lines):,} lines and begins with {first[:40]!r}"
    with path.open("rb") as tar:
        for line in lines:
            yield _read(tar.fileno(), index.name, line.split(" "))


def _read(tar: int, index: str, words: list[str]) -> Read:
    parts = [_member(tar, words[at : at + 4]) for at in range(0, len(words), 4)]
    found = {part[0]: part[2] for part in parts if part is not None}
    encoding = next((kind for kind in found if kind in IMAGES), "")
    name = next((part[1] for part in parts if part is not None), "")
    if len(found) != len(parts) or not encoding or "cls" not in found:
        return Read(name, fault=f"is not where index {index} says, or cut off")
    digits = found["cls"]
    label = int(digits) if digits.isdigit() else -1
    return Read(name, label, found[encoding])


def _member(tar: int, words: list[str]) -> tuple[str, str, bytes] | None:
    """Return extension, stem and content of the member that four words of an index point at."""
    if len(words) != 4 or not (words[1].isdigit() and words[2].isdigit()):
        return None
    extension, name = words[0], words[3]
    start, size = int(words[1]), int(words[2])
    header = os.pread(tar, BLOCK, start - BLOCK) if start >= BLOCK else b""
    content = os.pread(tar, size, start)
    right = (
        header[:100].rstrip(b"\0") == name.encode()
        and header[124:135] == f"{size:011o}".encode()
        and name.endswith(f".{extension}")
        and len(content) == size
    )
    return (extension, name.removesuffix(f".{extension}"), content) if right else None
