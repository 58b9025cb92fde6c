"""Change the header and the mode of a SIF file, so that equal content gives equal bytes.

Apptainer up to 1.4 writes a random identifier and the time of day into the header even when
SOURCE_DATE_EPOCH is set. Newer versions write that date and no identifier, and so does this module.
No program reads the two fields. A signature that is made later covers them. The layout is that of
`header` and `rawDescriptor` in github.com/apptainer/sif.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from trimaran.errors import BuildError

MAGIC = (32, b"SIF_MAGIC\0")
IDENTIFIER = (48, 16)
TIMES = 64  # created and modified, int64 each
DESCRIPTORS = struct.Struct("<qqqq")  # free, total, offset, size of the table
DESCRIPTORS_AT = 80
DESCRIPTOR_BYTES = 585
USED_AT = 4
DESCRIPTOR_TIMES = 41


def freeze(path: Path, epoch: int) -> None:
    """Set all dates in the header of the SIF at `path` to `epoch`, and its identifier to zero.

    Raises:
        BuildError: the file is not a SIF, or its layout is unknown.
    """
    dates = struct.pack("<qq", epoch, epoch)
    with path.open("r+b") as file:
        start = file.read(DESCRIPTORS_AT + DESCRIPTORS.size)
        at, magic = MAGIC
        if start[at:at + len(magic)] != magic:
            raise BuildError(f"{path} is not a SIF file", code="image-invalid")
        _, total, offset, size = DESCRIPTORS.unpack_from(start, DESCRIPTORS_AT)
        if size != total * DESCRIPTOR_BYTES:
            raise BuildError(f"{path} has a header of an unknown layout", code="image-invalid")
        _write(file, IDENTIFIER[0], bytes(IDENTIFIER[1]))
        _write(file, TIMES, dates)
        for place in range(offset, offset + size, DESCRIPTOR_BYTES):
            file.seek(place + USED_AT)
            if file.read(1) != b"\0":
                _write(file, place + DESCRIPTOR_TIMES, dates)


def make_executable(path: Path) -> None:
    """Give execute permission for the SIF at `path` to everyone who may read it, like Apptainer."""
    mode = path.stat().st_mode
    path.chmod(mode | (mode & 0o444) >> 2)


def _write(file: BinaryIO, at: int, content: bytes) -> None:
    file.seek(at)
    file.write(content)
