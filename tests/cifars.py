"""Create small data sets in the formats of CIFAR-10: binary files, and pickles of Python 2."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import sha

PIXELS = 3072
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
COUNTS = {"data_batch_1.bin": 13, "data_batch_2.bin": 12, "test_batch.bin": 7}
SPLITS = {"train": ["data_batch_1.bin", "data_batch_2.bin"], "test": ["test_batch.bin"]}
BINARY, PYTHON = "cifar-10-batches-bin", "cifar-10-batches-py"


def images(name: str) -> tuple[bytes, bytes]:
    """Return labels (a byte for each image) and pixels of made-up images for the file `name`."""
    count = COUNTS[name]
    seed = sum(name.encode())
    labels = bytes((seed + 3 * number) % 10 for number in range(count))
    pixels = bytes((seed + place * place // 7) % 256 for place in range(count * PIXELS))
    return labels, pixels


def binary(labels: bytes, pixels: bytes) -> bytes:
    """Return images in CIFAR-10's binary format: a label byte before the pixels of each image."""
    return b"".join(
        bytes([label]) + pixels[number * PIXELS :][:PIXELS] for number, label in enumerate(labels)
    )


def text(content: bytes) -> bytes:
    """Return the pickle operation that pushes a string of Python 2."""
    if len(content) < 256:
        return b"U" + bytes([len(content)]) + content
    return b"T" + struct.pack("<i", len(content)) + content


def number(value: int) -> bytes:
    """Return the pickle operation that pushes a number."""
    if 0 <= value < 256:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    return b"J" + struct.pack("<i", value)


def listed(items: Sequence[bytes]) -> bytes:
    """Return the pickle operations that push a list; 1,000 items at a time are appended."""
    parts = [b"(" + b"".join(items[at : at + 1000]) + b"e" for at in range(0, len(items), 1000)]
    return b"]" + b"".join(parts)


def array(
    rows: int, columns: int, values: bytes, *, kind: bytes = b"u1", by_columns: bool = False
) -> bytes:
    """Return the pickle operations that push a NumPy array of bytes, as in its `__reduce__`."""
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    dtype = b"cnumpy\ndtype\n" + text(kind) + b"K\x00K\x01\x87R(K\x03U\x01|NNN" + (
        number(-1) * 2 + b"K\x00tb"
    )
    order = b"\x88" if by_columns else b"\x89"
    shape = number(rows) + number(columns) + b"\x86"
    return made + b"(K\x01" + shape + dtype + order + text(values) + b"tb"


def batch(entries: Mapping[bytes, bytes]) -> bytes:
    """Return the pickle of a dict.

    `entries` maps each key to the pickle operations (opcodes) that push its value onto the
    stack.
    """
    pairs = b"".join(text(key) + value for key, value in entries.items())
    return b"\x80\x02}q\x01(" + pairs + b"u."


def python(labels: bytes, pixels: bytes, *, by_columns: bool = False) -> bytes:
    """Return images in CIFAR-10's Python format: a pickled dictionary, as Python 2 wrote it.

    If `by_columns` is true, the array of pixels is stored column by column.
    """
    rows = len(labels)
    values = pixels
    if by_columns:
        values = b"".join(pixels[column::PIXELS] for column in range(PIXELS))
    names = [text(f"image_s_{at:06}.png".encode()) for at in range(rows)]
    return batch({
        b"batch_label": text(b"training batch 1 of 5"),
        b"labels": listed([number(label) for label in labels]),
        b"data": array(rows, PIXELS, values, by_columns=by_columns),
        b"filenames": listed(names),
    })


def contents() -> dict[str, bytes]:
    """Return the files of the small data set in CIFAR-10's binary format: file name -> content."""
    return {name: binary(*images(name)) for name in COUNTS}


def tar_gz(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> bytes:
    """Return a .tar.gz archive of files (path -> content) and symbolic links (path -> target)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path, to in (links or {}).items():
            link = tarfile.TarInfo(path)
            link.type, link.linkname = tarfile.SYMTYPE, to
            archive.addfile(link)
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


def folders() -> dict[str, dict[str, bytes]]:
    """Return the files of both archives, by path in the archive.

    The result maps the name of an archive, `binary` or `python`, to a dict: path of a file in the
    archive -> content of the file.
    """
    pickles = {name.removesuffix(".bin"): python(*images(name)) for name in COUNTS}
    return {
        "binary": {f"{BINARY}/{name}": content for name, content in contents().items()},
        "python": {f"{PYTHON}/{name}": content for name, content in pickles.items()},
    }


def document(root: Path) -> dict[str, Any]:
    """Write the binary and the Python archive below `root`; return the contract that names both."""
    root.mkdir(parents=True, exist_ok=True)
    return {
        "schema": 1, "name": "tiny-cifar", "title": "A small CIFAR-10", "citation": "nobody, 2009",
        "licence": {"id": "MIT", "url": "https://example.org/licence", "holder": "nobody"},
        "homepage": "https://example.org/", "reader": "cifar", "classes": CLASSES,
        "splits": {
            split: {"samples": sum(COUNTS[name] for name in names), "files": names}
            for split, names in SPLITS.items()
        },
        "files": {name: {"sha256": sha(c), "size": len(c)} for name, c in contents().items()},
        "sources": [source(root, kind, tar_gz(files)) for kind, files in folders().items()],
    }


def source(root: Path, kind: str, archive: bytes) -> dict[str, Any]:
    """Write a .tar.gz archive into the folder `root`; return its entry for a data contract.

    The entry is an element of the contract's list `sources`.

    Args:
        root: the folder.
        kind: the CIFAR-10 format of the files in the archive, `binary` or `python`.
        archive: the bytes of the archive.
    """
    path = f"cifar-10-{kind}.tar.gz"
    (root / path).write_bytes(archive)
    end = ".bin" if kind == "binary" else ""
    return {
        "kind": "tar", "base": root.as_uri() + "/", "path": path, "sha256": sha(archive),
        "size": len(archive), "md5": hashlib.md5(archive, usedforsecurity=False).hexdigest(),
        "folder": BINARY if kind == "binary" else PYTHON, "pickled": kind == "python",
        "members": {name: name.removesuffix(".bin") + end for name in COUNTS},
    }
