"""Test `trimaran data pack --format tokens`: from text files to a verified data set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import writtentexts
from packings import files


def trimaran(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-c", "from trimaran.cli import main; main()", "data"]
    return subprocess.run(
        [*program, *map(str, words)], capture_output=True, text=True, check=False, timeout=120,
        env=os.environ | variables,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return writtentexts.folder(tmp_path / "My texts")


def test_pack_and_verify(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["--format", "tokens", "--tokenizer", "bpe:300", "--held-out", 20]
    done = trimaran("pack", source, "-o", out, *words)
    assert (done.returncode, done.stdout) == (0, f"{out}\n"), done.stderr
    described = json.loads((out / "dataset.json").read_text())
    assert described["name"] == "my-texts"
    assert described["text"]["vocabulary"] == 300
    assert trimaran("verify", out).returncode == 0
    (out / "tokenizer.json").write_text("{}")
    done = trimaran("verify", out)
    assert done.returncode == 4
    assert "[data-damaged]" in done.stderr
    assert "not the tokenizer of these tokens" in done.stderr


def test_the_number_of_threads_makes_no_difference(source: Path, tmp_path: Path) -> None:
    for threads in (1, 2, 3):
        done = trimaran("pack", source, "-o", tmp_path / str(threads), "--format", "tokens",
                        "--tokenizer", "bpe:400", "--held-out", 20, "--workers", threads)
        assert done.returncode == 0, done.stderr
    done = trimaran("pack", source, "-o", tmp_path / "none", "--format", "tokens",
                    "--tokenizer", "bpe:400", "--held-out", 20, TOKENIZERS_PARALLELISM="false")
    assert done.returncode == 0, done.stderr
    packed = [files(tmp_path / name) for name in ("1", "2", "3", "none")]
    assert all(one == packed[0] for one in packed)


@pytest.mark.parametrize(("words", "code"), [
    (["--tokenizer", "bytes"], "arguments-conflict"),
    (["--held-out", 5], "arguments-conflict"),
    (["--format", "tokens", "--resize", 5], "arguments-conflict"),
    (["--format", "tokens", "--sequences"], "arguments-conflict"),
    (["--format", "tokens", "--quality", 80], "arguments-conflict"),
    (["--format", "tokens", "--tokenizer", "none.json"], "file-missing"),
    (["--format", "tokens", "--tokenizer", "bpe:7"], "argument-invalid"),
    (["--format", "tokens", "--documents", "dictd"], "layout-invalid"),
    (["--format", "tokens", "--name", "A b"], "name-invalid"),
])
def test_a_wrong_option_is_one_error(
    words: list[object], code: str, source: Path, tmp_path: Path
) -> None:
    done = trimaran("pack", source, "-o", tmp_path / "out", *words)
    assert done.returncode == 2
    assert f"[{code}]" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_bad_documents_are_named_or_left_out(source: Path, tmp_path: Path) -> None:
    (source / "bad.txt").write_bytes(b"fa\xe7ade")
    words = ["pack", source, "-o", tmp_path / "out", "--format", "tokens", "--tokenizer", "bytes",
             "--held-out", 20]
    done = trimaran(*words)
    assert done.returncode == 4
    assert "[document-invalid]" in done.stderr
    assert "bad.txt" in done.stderr
    assert "0xe7 at byte 2" in done.stderr
    assert "--skip-bad" in done.stderr
    assert trimaran(*words, "--skip-bad").returncode == 0
    assert "bad.txt" in (tmp_path / "out/skipped.txt").read_text()
