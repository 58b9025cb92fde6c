"""Hostile names in a table: each works or causes one clear error, and none is executed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import photos
from packings import pack
from trimaran import cli
from trimaran.bundles import archive
from trimaran.bundles.archive import text_member
from trimaran.reporting import Silent

RECIPE = "resnet-imagenet/cpu-quickstart"

NAMES = [
    "a b", " ", "it's", 'say "x"', "a\nb", "a\n", "\x1b[31mred\x1b[0m", "\x07\x08", "tab\there",
    "-n", "--help", "--", "-", "$(touch pwned)", "`touch pwned`", "; touch pwned", "&& touch pwned",
    "| touch pwned", "$HOME", "~", "~root", "*", "?", "[a]", "{a,b}", "!!", "#", "%s%n", "a=b",
    "a:b", "a,b", "\\", "\\n", "größe", "名前", "\u202egpj.exe", "\u2028", "\ufeff", "e\u0301",
    "..", "../up", "../../etc/passwd", ".", "./x", "/", "//", "CON", "null", "x" * 255,
    "<b>", "[red]x[/]", ":b:", "{{ x }}", "@", "a@b", "\x7f",
]
"""Hostile texts, used as values, and as names of files where the system permits such names."""

FILE_NAMES = [name for name in NAMES if "/" not in name and name not in {".", ".."}]

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Return a function that runs `trimaran WORDS`, and returns exit code, output and messages."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["trimaran", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        said = capsys.readouterr()
        assert "a fault of Trimaran" not in said.err
        for text in (said.out, said.err):
            assert all(char.isprintable() or char in "\n\t" for char in text), "obeyed by terminals"
        return ended.value.code, said.out, said.err

    return run


def tree(place: Path) -> list[str]:
    """Return the relative paths of everything below `place`."""
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


COMMANDS = [
    ["run", "NAME", "--dry-run"], ["bundle", "NAME", "-o", "b.tar"], ["show", "recipes", "NAME"],
    ["show", "images", "NAME"], ["show", "apps", "NAME"], ["show", "targets", "NAME"],
    ["show", "data", "NAME"], ["build", "NAME", "--engine", "host"],
    ["inspect", "NAME", "--engine", "host"], ["lock", "NAME"], ["render", "--check", "NAME"],
    ["data", "get", "NAME"], ["run", RECIPE, "--dry-run", "--engine", "NAME"],
    ["data", "pack", ".", "-o", "out", "--name", "NAME"],
]


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_a_name_that_nothing_has(number: int, call: Call, tmp_path: Path) -> None:
    words, before = COMMANDS[number], tree(tmp_path)
    for name in NAMES[number % 4 :: 4]:
        given = [name if word == "NAME" else word for word in words]
        code, _, said = call(*given)
        if code == 0:  # `render` without a name takes all images
            assert name == "--help" or (words[0], name) == ("render", "--")
            continue
        # Where there is no Apptainer, `bundle` says that first.
        assert code == 2 or (words[0] == "bundle" and code == 3), (name, said)
        assert "hint: " in said or "Usage: " in said, (name, said)
    assert tree(tmp_path) == before


def words_of(line: str, shell: str) -> list[str]:
    """Return the words into which `shell` splits `line`, without executing the line."""
    done = subprocess.run(
        [shell], input=f"printf '%s\\0' {line}\n", capture_output=True, text=True, check=True,
        errors="surrogateescape",
    )
    return done.stdout.split("\0")[:-1]


def test_a_dry_run_pasted_into_a_shell_means_the_folders_that_were_named(
    call: Call, own_place: Path
) -> None:
    for at in range(0, len(FILE_NAMES), 8):
        name = "/".join(FILE_NAMES[at : at + 8])
        code, out, said = call(
            "run", RECIPE, "--engine", "host", "--dry-run", f"--out={name}", f"--data={name}",
        )
        assert code == 0, (name, said)
        script = out.split("mkdir -p ", 1)[1]
        made, rest = script.split("\ncd ", 1)
        moved, command = rest.split("\nenv -i ", 1)
        place = str(own_place / name)
        for shell in ("sh", "bash"):
            assert words_of(made, shell) == words_of(moved, shell) == [place]
            words = words_of(f"env -i {command}", shell)
            assert f"--out={place}" in words
            assert f"--data={place}" in words
    assert tree(own_place) == []


def test_a_setting_is_refused_or_stays_one_word(call: Call, tmp_path: Path) -> None:
    before = tree(tmp_path)
    for number, name in enumerate(NAMES):
        setting = (f"{name}=1", f"epochs={name}", f"model={name}", name)[number % 4]
        code, _, said = call("run", RECIPE, "--engine", "host", "--dry-run", f"--set={setting}")
        assert code == 2, (setting, said)
        assert "]: --set" in said
    assert tree(tmp_path) == before


def test_files_and_classes_of_any_name_are_packed_or_refused(call: Call, tmp_path: Path) -> None:
    source = tmp_path / "photos"
    for number, name in enumerate(name for name in FILE_NAMES if len(name) < 200):
        for split in ("train", "val"):
            place = source / split / name
            place.mkdir(parents=True)
            (place / f"{name}.jpg").write_bytes(photos.jpeg(number))
    before = tree(tmp_path)
    code, _, said = call("data", "pack", source, "-o", "packed", "--workers", 1)
    assert code == 0, said
    code, _, said = call("data", "verify", "packed", "--workers", 1)
    assert code == 0, said
    made = sorted(name for name in tree(tmp_path) if not name.startswith("work/packed"))
    assert made == before


@pytest.mark.parametrize("below", ["train", "train/one"])
def test_a_file_whose_name_is_no_text_is_named(below: str, call: Call, tmp_path: Path) -> None:
    source = photos.folder(tmp_path / "photos")
    odd = os.fsencode(source / below) + b"/odd\xff.jpg"
    if below == "train":
        os.mkdir(odd)  # noqa: PTH102 - bytes
        odd += b"/1.jpg"
    else:
        (source / below).mkdir()
    with open(odd, "wb") as file:  # noqa: PTH123
        file.write(photos.jpeg(1))
    code, _, said = call("data", "pack", source, "-o", "packed", "--workers", 1)
    assert code == 2
    assert "odd\\udcff" in said
    assert "[name-invalid]" in said


def test_a_bundle_of_any_name_is_written_read_and_unpacked_there(
    call: Call, tmp_path: Path
) -> None:
    members = [text_member("bundle.json", "{}\n", 7), text_member("run.sh", "#!/bin/sh\n", 7)]
    for number, name in enumerate(name for name in FILE_NAMES if len(name) < 200):
        place = tmp_path / str(number)
        place.mkdir()
        file = place / f"{name}.tar"
        archive.write(file, "small", members, Silent())
        code, _, said = call("unbundle", file, f"--to={place / name}")
        assert code == 4, (name, said)  # bundle.json says nothing
        assert tree(place) == [file.name]


def test_packed_data_of_any_name_are_verified(call: Call, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    pack(photos.folder(tmp_path / "photos"), whole)
    for name in FILE_NAMES[:12]:
        place = tmp_path / "work" / name
        whole.rename(place)
        code, _, said = call("data", "verify", "--workers", 1, "--", f"./{name}")
        assert code == 0, (name, said)
        whole = place
