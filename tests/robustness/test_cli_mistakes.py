"""Test that each mistake of a user ends with a documented code and a hint, and none with a crash.

`test_cli_names.py` tests hostile names; this module tests values of the wrong kind.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import photos
import writtentexts
from packings import pack
from trimaran import cli

RECIPE = "resnet-imagenet/cpu-quickstart"
RUN = ["run", RECIPE, "--engine", "host", "--dry-run"]

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs `trimaran WORDS`, and returns exit code and standard error."""

    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["trimaran", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return run


def is_helpful(said: str) -> bool:
    """Return whether a message contains a hint or a usage line."""
    return "hint: " in said or "Usage: " in said


def things(place: Path) -> dict[str, Path]:
    """Create unusual files and folders, such as a broken link; return name -> path.

    The tests give these paths to commands that expect another kind of file or folder. Some of the
    paths do not exist.
    """
    (place / "folder").mkdir()
    (place / "binary").write_bytes(bytes(range(256)) * 9)
    (place / "empty").touch()
    (place / "loop").symlink_to("loop")
    (place / "dangling").symlink_to("nowhere")
    found = {name: place / name for name in ("folder", "binary", "empty", "loop", "dangling")}
    return {**found, "missing": place / "no/such", "below a file": place / "binary/x",
            "long": place / ("x" * 300)}


FILES = [
    [*RUN, "--site"], [*RUN, "--ca-bundle"], [*RUN, "--initial"], [*RUN, "--venv"],
    ["unbundle"], ["unbundle", "--verify"], ["resume"], ["report"], ["data", "verify"],
    ["data", "pack", "-o", "out"], ["data", "squashfs", "-o", "out"],
    ["sign"], ["verify"],
]
"""Commands whose last argument is a file or folder that they read."""


@pytest.mark.parametrize("words", FILES, ids=" ".join)
def test_what_is_read_may_be_anything(words: list[str], call: Call, tmp_path: Path) -> None:
    for name, path in things(tmp_path).items():
        code, said = call(*words, path)
        assert code in {2, 3, 4}, (name, said)
        # Of a file that is read and is not such a file the fault itself is named.
        assert is_helpful(said) or name in {"binary", "empty"}, (name, said)


@pytest.mark.parametrize(
    "words",
    [["data", "squashfs", "DATA", "-o"], ["data", "pack", ".", "-o"], [*RUN, "--out"],
     ["sbom", "torch-cpu", "--engine", "host", "-o"]],
    ids=" ".join,
)
def test_what_is_written_may_not_replace_anything(
    words: list[str], call: Call, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    pack(photos.folder(tmp_path / "photos"), data)
    for name, path in things(tmp_path).items():
        code, said = call(*(data if word == "DATA" else word for word in words), path)
        if code != 0:  # a new place, or an empty folder
            assert code in {2, 3, 4}, (name, said)
            assert is_helpful(said), (name, said)
        assert (tmp_path / "binary").read_bytes() == bytes(range(256)) * 9, name


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ([], 2), (["nonsense"], 2), (["--nonsense"], 2), (["list"], 2), (["list", "x"], 2),
        (["show", "recipes", "resnet-imagenet/cpu-quick"], 2), (["show", "images", "torch"], 2),
        (["show", "data", "fashion"], 2), (["show", "targets", "cpu"], 2),
        (["show", "apps", "resnet"], 2), (["run", "cpu-quickstart"], 2),
        (["run", RECIPE, "--engine", "docker"], 2), ([*RUN, "--set", "epochs"], 2),
        ([*RUN, "--set", "=1"], 2), ([*RUN, "--set", "data=x"], 2),
        (["fetch", "torch-cpu", "--offline", "--python", "2.7"], 2),
        (["fetch", "torch-cpu", "--offline"], 3), (["lock", "x"], 2), (["render", "x"], 2),
        (["build", "x"], 2), (["inspect", "torch-cpu", "--engine", "host"], 3),
        (["verify", "image.sif", "--key", "ABC"], 2), (["data", "get", "x"], 2),
        (["data", "get", "fashion-mnist", "--offline"], 4),
        (["data", "get", "fashion-mnist", "--from", "x"], 2),
        (["data", "pack", ".", "-o", "out", "--format", "zip"], 2),
        (["data", "pack", ".", "-o", "out", "--resize", "0"], 2),
        (["data", "pack", ".", "-o", "out", "--name", "A b"], 2),
        (["data", "verify", "x"], 2), (["cache", "prune", "x"], 2),
        (["push", "torch-cpu", "--engine", "host"], 2), (["audit", "x"], 2),
        (["report", "."], 2), (["resume", "."], 2), (["run", ""], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_wrong_argument(words: list[str], code: int, call: Call) -> None:
    found, said = call(*words)
    assert found == code, said
    assert is_helpful(said), said


@pytest.mark.parametrize("place", ["/proc/no/such", "/dev/null/cache"])
def test_a_cache_that_cannot_be(
    place: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", place)
    for words in (["data", "get", "fashion-mnist", "--offline"],
                  ["build", "torch-cpu", "--engine", "host", "--offline"],
                  ["fetch", "torch-cpu", "--offline"]):
        code, said = call(*words)
        assert code in {2, 3, 4}, said
        assert "hint: " in said
    assert call("cache", "list")[0] == call("list", "images")[0] == 0


@pytest.mark.parametrize(
    "value",
    ["99999999999999999999999", "9" * 5000, "1e999", ".nan", "2026-02-31", "!!int zz", "[1]",
     "? [a]", "-1", "1.5", "abc", "&a [*a]", "{a: b}", "'", "\t", "~"],
)
def test_a_seed_that_is_none(value: str, call: Call) -> None:
    code, said = call(*RUN, "--set", f"seed={value}")
    assert code == 2, said
    assert "seed" in said
    assert len(said) < 3000, "a value is quoted in short"


@pytest.mark.parametrize("kind", ["webdataset", "lmdb", "tokens"])
def test_every_file_of_a_data_set_may_be_anything(
    kind: str, call: Call, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    if kind == "tokens":
        writtentexts.pack(writtentexts.folder(tmp_path / "texts"), whole)
    else:
        pack(photos.folder(tmp_path / "photos"), whole, format=kind)
    names = [path.name for pattern in ("val-*", "tokenizer*") for path in whole.glob(pattern)]
    for name in ("dataset.json", *names):
        for other in ("folder", "binary", "dangling"):
            place = tmp_path / f"{name}-{other}"
            shutil.copytree(whole, place)
            spoil(place / name, other)
            code, said = call("data", "verify", place, "--workers", 1)
            assert code in {2, 4}, (name, other, said)


@pytest.mark.parametrize("name", ["run.json", "recipe.yaml", "metrics.jsonl"])
def test_every_file_of_a_run_may_be_anything(name: str, call: Call, tmp_path: Path) -> None:
    for other in ("folder", "binary", "empty", "dangling", "absent"):
        place = tmp_path / other
        place.mkdir()
        (place / "run.json").write_text(json.dumps({"status": "completed"}))
        (place / "recipe.yaml").write_text("schema: 1\n")
        (place / "metrics.jsonl").write_text("{}\n")
        spoil(place / name, other)
        for command in ("report", "resume"):
            code, said = call(command, place)
            assert code in {2, 4}, (other, said)


def spoil(path: Path, other: str) -> None:
    """Replace the file or folder `path` by something else."""
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    if other == "folder":
        path.mkdir()
    elif other == "binary":
        path.write_bytes(os.urandom(5000))
    elif other == "empty":
        path.touch()
    elif other == "dangling":
        path.symlink_to("nowhere")
