"""Folders with files that a build without root left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from trimaran.engines import removal
from trimaran.engines.removal import NAMESPACE

as_user = pytest.mark.skipif(
    os.geteuid() == 0, reason="root may remove the files of every user; CI tests as another user")


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Path]:
    """Return a folder with a folder of a subordinate user id, as `tar` in a build creates it."""
    folder = tmp_path / "rootfs"
    inner = folder / "horovod/cmake"
    inner.mkdir(parents=True)
    (inner / "file").touch()
    subprocess.run([*NAMESPACE, "chown", "-R", "1000:122", str(inner)], check=True)
    yield folder
    subprocess.run([*NAMESPACE, "rm", "-rf", str(folder)], check=True)


@as_user
def test_files_of_subordinate_users_are_removed(left: Path) -> None:
    with pytest.raises(PermissionError):
        shutil.rmtree(left)
    removal.remove_folder(left)
    assert not left.exists()


@as_user
def test_what_cannot_be_removed_is_named(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "NAMESPACE", ("no-such-program",))
    with pytest.raises(PermissionError) as caught:
        removal.remove_folder(left)
    assert caught.value.filename == str(left)


def test_an_ordinary_folder_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "part"
    (folder / "inner").mkdir(parents=True)
    removal.remove_folder(folder)
    assert not folder.exists()


def test_what_the_user_may_not_remove_is_removed_in_the_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "part"
    folder.mkdir()
    monkeypatch.setattr(removal.shutil, "rmtree", lambda *_, **__: None)  # as if not permitted
    monkeypatch.setattr(removal, "NAMESPACE", ("env", "--"))  # root of a namespace is not needed
    removal.remove_folder(folder)
    assert not folder.exists()
