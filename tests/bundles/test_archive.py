"""Test that the tar file of a bundle is read completely or refused, whatever its damage."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from refusals import refused
from smalldisk import files_up_to
from trimaran.bundles import archive
from trimaran.bundles.archive import Member, text_member
from trimaran.errors import RunError
from trimaran.reporting import Silent

CONTENT = {
    "bundle.json": b"{}\n",
    "run.sh": b"#!/bin/sh\n",
    "data/shard.tar": random.Random(1).randbytes(3000),  # noqa: S311 - no secret
    "image.sif": random.Random(2).randbytes(6_000),  # noqa: S311
}


def members(place: Path) -> list[Member]:
    """Return the members of a small bundle: bundle.json, and files that are written to `place`."""
    found = [text_member("bundle.json", "{}\n", 7)]
    for name, content in list(CONTENT.items())[1:]:
        path = place / Path(name).name
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        mode = 0o755 if name == "run.sh" else 0o644
        found.append(Member(name, path, len(content), digest, 7, mode))
    return found


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    file = tmp_path / "small.tar"
    archive.write(file, "small", members(tmp_path), Silent())
    return file


def unpack(file: Path, to: Path) -> dict[str, bytes]:
    """Check a bundle while unpacking it; return path -> content of all files but SHA256SUMS."""
    to.mkdir()
    with archive.opened(file) as found:
        found.check(to, Silent())
    files = {str(p.relative_to(to)): p.read_bytes() for p in to.rglob("*") if p.is_file()}
    del files[archive.SUMS]
    return files


def check(file: Path) -> None:
    with archive.opened(file) as found:
        found.check(None, Silent())


def test_what_is_packed_is_unpacked(bundle: Path, tmp_path: Path) -> None:
    assert unpack(bundle, tmp_path / "out") == CONTENT
    assert (tmp_path / "out/run.sh").stat().st_mode & 0o111
    assert not (tmp_path / "out/image.sif").stat().st_mode & 0o111
    with archive.opened(bundle) as found:
        assert found.folder == "small"
        assert found.text("bundle.json") == b"{}\n"


def test_the_bytes_depend_on_the_members_alone(bundle: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.tar"
    digest = archive.write(again, "small", members(tmp_path), Silent())
    assert again.read_bytes() == bundle.read_bytes()
    assert digest == hashlib.sha256(bundle.read_bytes()).hexdigest()


def test_tar_alone_unpacks_it_into_one_folder(bundle: Path) -> None:
    with tarfile.open(bundle) as tar:
        assert {name.split("/")[0] for name in tar.getnames()} == {"small"}
        assert {(member.uid, member.uname) for member in tar} == {(0, "")}


def test_a_bundle_is_never_overwritten(bundle: Path, tmp_path: Path) -> None:
    with refused("file-exists", bundle):
        archive.write(bundle, "small", members(tmp_path), Silent())
    with refused("file-missing", tmp_path / "absent"):
        archive.check_new(tmp_path / "absent/file.tar")


def test_a_file_that_changes_while_it_is_packed_is_noticed(tmp_path: Path) -> None:
    given = members(tmp_path)
    (tmp_path / "image.sif").write_bytes(b"x" * 6_000)
    with refused("file-changed", tmp_path / "image.sif"):
        archive.write(tmp_path / "b.tar", "small", given, Silent())
    (tmp_path / "image.sif").write_bytes(b"short")
    with refused("file-unwritable", tmp_path / "b.tar"):
        archive.write(tmp_path / "b.tar", "small", given, Silent())
    assert list(tmp_path.glob("*b.tar*")) == []


def test_too_little_space_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = type("Usage", (), {"free": 20_000})
    monkeypatch.setattr("shutil.disk_usage", lambda folder: free)
    with refused("disk-full", " MB ", kind=RunError):
        archive.write(tmp_path / "b.tar", "small", members(tmp_path), Silent())
    assert list(tmp_path.glob("*b.tar*")) == []


def test_a_disk_that_fills_up_leaves_nothing(bundle: Path, tmp_path: Path) -> None:
    given = members(tmp_path)
    with files_up_to(5_000):
        with refused("file-unwritable", tmp_path / "b.tar", os.strerror(errno.EFBIG)):
            archive.write(tmp_path / "b.tar", "small", given, Silent())
        with refused("file-unwritable", bundle, os.strerror(errno.EFBIG)):
            unpack(bundle, tmp_path / "out")
    assert list(tmp_path.glob("*b.tar*")) == []


def test_truncation_anywhere_is_noticed(bundle: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    with tarfile.open(bundle) as tar:
        end = max(member.offset_data + member.size for member in tar)
    cut = tmp_path / "cut.tar"
    for length in [*range(0, end, 512), end - 1]:
        cut.write_bytes(content[:length])
        with pytest.raises(RunError):
            check(cut)
    with refused("bundle-damaged", cut, "image.sif"):
        check(cut)


def test_a_changed_byte_is_noticed_wherever_it_matters(bundle: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    bad = tmp_path / "bad.tar"
    noticed = 0
    for number, at in enumerate(range(0, len(content), 131)):
        changed = bytearray(content)
        changed[at] ^= 1 << number % 8
        bad.write_bytes(changed)
        try:
            check(bad)
        except RunError:
            noticed += 1
        else:  # the byte is in the padding of a block: the content is unchanged
            assert unpack(bad, tmp_path / f"out-{at}") == CONTENT
    assert noticed > sum(map(len, CONTENT.values())) // 131


def test_a_changed_byte_names_its_file(bundle: Path, tmp_path: Path) -> None:
    content = bytearray(bundle.read_bytes())
    content[content.index(CONTENT["data/shard.tar"]) + 1500] ^= 1
    bundle.write_bytes(content)
    with refused("bundle-damaged", bundle, "data/shard.tar"):
        check(bundle)


def craft(file: Path, change: Callable[[tarfile.TarFile], None], *, whole: bool = True) -> Path:
    """Write a bundle with the text a.txt and its hash; `change` can add further members.

    If `whole` is false, the bundle lacks a.txt.
    """
    text = b"hello\n"
    sums = f"{hashlib.sha256(text).hexdigest()}  a.txt\n".encode()
    with tarfile.open(file, "w") as tar:
        add(tar, "small/SHA256SUMS", sums)
        if whole:
            add(tar, "small/a.txt", text)
        change(tar)
    return file


def add(tar: tarfile.TarFile, name: str, content: bytes = b"", **facts: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in facts.items():
        setattr(info, key, value)
    tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("../x", {}),
        ("/tmp/x", {}),
        ("small/../../x", {}),
        ("small/extra", {}),
        ("other/a.txt", {}),
        ("small/a.txt", {}),  # a second time
        ("small/a.txt", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}),
        ("small/a.txt", {"type": tarfile.LNKTYPE, "linkname": "small/SHA256SUMS"}),
        ("small/a.txt", {"type": tarfile.CHRTYPE, "devmajor": 1, "devminor": 3}),
        ("small/a.txt", {"type": tarfile.FIFOTYPE}),
        ("small/sub", {"type": tarfile.DIRTYPE}),
    ],
    ids=str,
)
def test_what_does_not_belong_is_refused(
    tmp_path: Path, name: str, facts: dict[str, object]
) -> None:
    whole = "type" not in facts  # else it replaces the listed file
    file = craft(tmp_path / "b.tar", lambda tar: add(tar, name, **facts), whole=whole)
    with refused("bundle-unsafe", file, repr(name)):
        unpack(file, tmp_path / "out")
    found = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert found <= {"b.tar", "work", "out", "out/SHA256SUMS", "out/a.txt"}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    file = craft(tmp_path / "b.tar", lambda tar: None, whole=False)
    with refused("bundle-damaged", file, "a.txt"):
        check(file)


@pytest.mark.parametrize(
    "line", ["{}  ../x", "{}  /x", "{}  a/../x", "{}  .hidden", "{}  a b", "{} a", "x  a", ""]
)
def test_a_list_of_hashes_with_other_lines_is_refused(tmp_path: Path, line: str) -> None:
    file = tmp_path / "b.tar"
    with tarfile.open(file, "w") as tar:
        add(tar, "small/SHA256SUMS", (line.format("0" * 64) + "\n").encode())
    with refused("bundle-damaged", file, archive.SUMS):
        check(file)


@pytest.mark.parametrize("content", [b"", b"text", b"\x1f\x8b\x08", b"\0" * 10240])
def test_another_file_is_no_bundle(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "b.tar"
    file.write_bytes(content)
    with refused("bundle-invalid", file):
        check(file)


def test_another_tar_is_no_bundle(tmp_path: Path) -> None:
    file = tmp_path / "b.tar"
    with tarfile.open(file, "w") as tar:
        add(tar, "small/a.txt", b"x")
    with refused("bundle-invalid", file, archive.SUMS):
        check(file)
    with refused("file-missing", tmp_path / "absent.tar"):
        check(tmp_path / "absent.tar")
