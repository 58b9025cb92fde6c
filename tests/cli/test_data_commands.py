"""Test `trimaran data pack`, `verify` and `get`: output and exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import photos
from smalldisk import files_up_to
from trimaran import cli

Told = Callable[..., tuple[int, str]]


def trimaran(*words: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from trimaran.cli import main; main()", "data"]
    return subprocess.run(
        [*program, *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    """Return a function that runs `trimaran data WORDS`, and returns exit code and stderr."""
    def call(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["trimaran", "data", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return call


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photos.folder(tmp_path / "My photos")


def test_pack_and_verify(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = trimaran("pack", source, "-o", out, "--format", "recordio", "--workers", 1)
    assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
    assert json.loads((out / "dataset.json").read_text())["name"] == "my-photos"
    assert trimaran("verify", out, "--workers", 1).returncode == 0
    shard = out / "train-00000.rec"
    shard.write_bytes(shard.read_bytes()[:-50])
    done = trimaran("verify", out, "--workers", 1)
    assert done.returncode == 4
    assert "[data-damaged]" in done.stderr
    assert str(shard) in done.stderr
    assert "record 13" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("name", "limit"), [("lmdb", 9_000), ("hdf5", 11_000)])
def test_packing_onto_a_full_disk_says_so_and_goes_on_when_there_is_space(
    source: Path, tmp_path: Path, name: str, limit: int
) -> None:
    """Packing fails at a limit on the size of files, as on a full disk, and later continues."""
    out, whole = tmp_path / "out", tmp_path / "whole"
    words = ["--format", name, "--workers", "1"]
    with files_up_to(limit):
        done = trimaran("pack", source, "-o", out, *words)
    assert done.returncode == 4
    [error] = [line for line in done.stderr.splitlines() if line.startswith("error[")]
    assert f"{out}: " in error
    assert "Traceback" not in done.stderr
    assert trimaran("pack", source, "-o", out, *words).returncode == 0
    assert trimaran("pack", source, "-o", whole, *words).returncode == 0
    for path in whole.rglob("*.*"):
        if path.is_file():
            assert (out / path.relative_to(whole)).read_bytes() == path.read_bytes()


def test_mistakes_are_told_with_their_exit_codes(
    source: Path, tmp_path: Path, told: Told
) -> None:
    code, said = told("pack", tmp_path / "absent", "-o", tmp_path / "out")
    assert code == 2
    assert "[layout-invalid]" in said
    bad = source / "train/cat/bad.jpg"
    bad.write_bytes(b"")
    done = trimaran("pack", source, "-o", tmp_path / "out", "--workers", 1)
    assert done.returncode == 4
    assert str(bad) in done.stderr
    code, said = told("verify", "fashion-minst")
    assert code == 2
    assert "[name-unknown]" in said
    assert "fashion-mnist" in said
    code, said = told("get", "imagenet-2012")
    assert code == 4
    assert "image-net.org/signup" in said
    code, said = told("verify", "imagenet-2012")
    assert code == 4
    assert "trimaran data get imagenet-2012 --from DIR" in said


@pytest.mark.parametrize("name", ["My Data", "-x", "", "a\n"])
def test_a_wrong_name_is_refused_before_anything_is_done(
    source: Path, tmp_path: Path, told: Told, name: str
) -> None:
    code, said = told("pack", source, "-o", tmp_path / "out", f"--name={name}", "--workers", 1)
    assert code == 2, said
    assert f"[name-invalid]: {name!r}" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("below", ["", "out", "train/out", "../link/train/out"])
def test_the_packed_set_may_not_lie_in_its_source(
    source: Path, tmp_path: Path, told: Told, below: str
) -> None:
    """Packing into the source or a folder below it is refused, and nothing is written.

    Otherwise the next packing would read the packed data set as a split or a class.
    """
    (tmp_path / "link").symlink_to(source)
    before = sorted(source.rglob("*"))
    code, said = told("pack", source, "-o", source / below, "--workers", 1)
    assert code == 2, said
    assert "[arguments-conflict]" in said
    assert sorted(source.rglob("*")) == before
