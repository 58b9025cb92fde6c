"""Print each program and library of an image that a kernel with pages of 64 KiB cannot load.

A test runs this file with the Python of an image for arm64. elf(5) describes the format: AArch64 is
machine 183; a loadable segment has type 1; its alignment must be a multiple of the page.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PAGE = 1 << 16
KINDS = (2, 3)
"""Types of ELF files that a kernel or the dynamic linker loads: programs, and shared objects."""


def alignments(file: BinaryIO) -> Iterator[int]:
    """Yield the alignment of each loadable segment; nothing if the file is not of AArch64."""
    head = file.read(64)
    if head[:5] != b"\x7fELF\x02" or len(head) < 64:
        return
    kind, machine = struct.unpack_from("<HH", head, 16)
    if machine != 183 or kind not in KINDS:
        return
    (offset,) = struct.unpack_from("<Q", head, 32)
    size, number = struct.unpack_from("<HH", head, 54)
    file.seek(offset)
    for _ in range(number):
        row = file.read(size)
        if struct.unpack_from("<I", row)[0] == 1:
            yield struct.unpack_from("<Q", row, 48)[0]


if __name__ == "__main__":
    seen = 0
    for top in ("/opt/trimaran", "/usr"):
        for path in Path(top).rglob("*"):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    found = list(alignments(file))
                seen += bool(found)
                if any(one % PAGE for one in found):
                    print(path)
    if not seen:
        print("no program or library of AArch64")
