"""The tool reads and writes text as UTF-8, independently of the locale of the machine."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import photos
from trimaran import paths

ROOT = paths.repository()
OURS = sorted(path for pattern in ("src/**/*.py", "apps/*/src/**/*.py", "site/generator/*.py")
              for path in ROOT.glob(pattern))
CLASS = "Mäuse-鼠"


def locale(kind: str, folder: Path) -> dict[str, str]:
    """Return the environment variables for a locale whose encoding is not UTF-8."""
    if kind == "ascii":
        return {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(folder / "en_US.ISO-8859-1")],
        capture_output=True, check=False,
    ) if Path("/usr/share/i18n/charmaps/ISO-8859-1.gz").exists() else None
    if done is None or done.returncode > 1:  # 1: with warnings
        pytest.skip("this machine cannot make a locale: Debian's package `locales` is not here")
    return {"LC_ALL": "en_US.ISO-8859-1", "LOCPATH": str(folder)}


@pytest.mark.parametrize("kind", ["ascii", "latin-1"])
def test_names_of_classes_are_packed_as_they_are(tmp_path: Path, kind: str) -> None:
    source = photos.folder(tmp_path / "photos")
    for split in source.iterdir():
        next(path for path in split.iterdir() if path.is_dir()).rename(split / CLASS)
    environment = {**os.environ, **locale(kind, tmp_path)}
    out = tmp_path / "päcked"
    done = subprocess.run(
        [sys.executable, "-c", "from trimaran.cli import main; main()", "data", "pack", source,
         "-o", out, "--workers", "1"],
        env=environment, capture_output=True, check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads((out / "dataset.json").read_text(encoding="utf-8"))
    assert CLASS in document["classes"]
    assert str(out).encode() in done.stdout


def opened(tree: ast.AST) -> Iterator[int]:
    """Yield the line number of each call that reads or writes text without naming the encoding."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or any(one.arg == "encoding" for one in node.keywords):
            continue
        of, _, name = ast.unparse(node.func).rpartition(".")
        keywords = {one.arg for one in node.keywords}
        modes = [arg.value for arg in node.args
                 if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        if (
            (name == "read_text" and not node.args) or name == "write_text"
            or (of == "subprocess" and keywords & {"text", "universal_newlines"})
            # Archives and videos hold no text.
            or (name == "open" and of not in ("archive", "av", "tarfile", "zipfile") and modes
                and set(modes[-1]) <= set("rwax+t"))
        ):
            yield node.lineno


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_read_or_written_in_the_encoding_of_the_locale(path: Path) -> None:
    if "testing" in path.parts:
        return  # tests that apps inherit, of files in ASCII
    lines = list(opened(ast.parse(path.read_text(encoding="utf-8"))))
    assert lines == [], f"{path}: say encoding="
