"""`scripts/mutants.py`: each table entry can be applied; undetected mutants are reported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import mutants as script
from trimaran import paths

ROOT = paths.repository()
RIGHT = "def double(x):\n    return 2 * x\n"
TEST = """
from calculation import double

def test_double():
    assert double(3) == 6

def test_nothing():
    double(0)
"""


def test_every_entry_of_the_table_applies_and_has_its_test() -> None:
    mutants = script.load(ROOT)
    assert len(mutants) >= 80
    assert len({(m.file, m.text, m.becomes) for m in mutants}) == len(mutants)
    for mutant in mutants:
        wrong = mutant.applied((ROOT / mutant.file).read_text(encoding="utf-8"))
        if mutant.file.endswith(".py"):
            compile(wrong, mutant.file, "exec")
        elif mutant.file.endswith(".sh"):
            subprocess.run(["sh", "-n"], input=wrong, text=True, check=True)
        else:
            yaml.safe_load(wrong)


def entry(**more: str) -> dict[str, str]:
    return {
        "what": "triples", "text": "2 * x", "becomes": "3 * x",
        "test": "test_calculation.py::test_double", **more,
    }


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Create a repository with one function, two tests, and a virtual environment to run them."""
    root = tmp_path / "tree"
    for folder in ("src", "tests", "scripts", ".venv/bin"):
        (root / folder).mkdir(parents=True)
    (root / "src/calculation.py").write_text(RIGHT)
    (root / "tests/test_calculation.py").write_text(TEST)
    (root / ".gitignore").write_text(".venv/\n")
    python = root / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *author, "commit", "-qm", "x"], cwd=root, check=True)
    return root


def run(tree: Path, *entries: dict[str, str], words: tuple[str, ...] = ()) -> Any:
    (tree / script.TABLE).write_text(yaml.safe_dump({"src/calculation.py": list(entries)}))
    return script.main([*words, "--json", str(tree / "found.json")], tree)


def test_killed_and_survived_are_told_and_the_tree_stays_as_it_was(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    survivor = entry(what="zero", becomes="0 * x", test="test_calculation.py::test_nothing")
    broken = entry(what="no name", becomes="y * x", text="2 * x")
    no_module = entry(what="no module", text="def double", becomes="def triple")
    assert run(tree, entry(), survivor, broken, no_module) == 1
    said = capsys.readouterr().out
    assert "2 of 4 killed" in said
    assert "survived: src/calculation.py: zero\n  test_calculation.py::test_nothing" in said
    assert "does not run: src/calculation.py: no module" in said
    assert (tree / "src/calculation.py").read_text() == RIGHT
    found = json.loads((tree / "found.json").read_text())
    assert found["outcomes"] == {"killed": 2, "survived": 1, "does not run": 1}
    assert found["revision"].endswith("+")  # the table was not committed
    assert run(tree, entry()) == 0


@pytest.mark.parametrize(("wrong", "said"), [
    ({"text": "x"}, "'x' occurs 2 times"),
    ({"text": "4 * x"}, "'4 * x' occurs 0 times"),
    ({"becomes": "2 * x"}, "nothing changes"),
    ({"test": "test_calculation.py::test_gone"}, "no test test_calculation.py::test_gone"),
])
def test_an_entry_that_does_not_apply_is_an_error(
    wrong: dict[str, str], said: str, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tree, entry(**wrong)) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_in_a_table_twice_is_an_error(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = yaml.safe_dump({"src/calculation.py": [entry()]})
    (tree / script.TABLE).write_text(once + once)
    assert script.main([], tree) == 2
    assert f"{tree / script.TABLE}:6:" in capsys.readouterr().err


def test_a_test_that_fails_without_a_fault_is_an_error(
    tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "tests/test_calculation.py").write_text(TEST.replace("== 6", "== 7"))
    assert run(tree, entry()) == 2
    assert "fails without any fault" in capsys.readouterr().err


def test_a_sample_is_chosen_by_its_seed(tree: Path) -> None:
    mutants = script.load(ROOT)
    chosen = [
        script.choose(mutants, script.options(["--sample", "10", "--seed", seed]), tree)
        for seed in ("a", "a", "b")
    ]
    assert [len(some) for some in chosen] == [10] * 3
    assert chosen[0] == chosen[1] != chosen[2]
    by_revision = script.options(["--sample", "10"])
    assert script.choose(mutants, by_revision, tree) == script.choose(mutants, by_revision, tree)


def test_a_test_that_hangs_is_no_kill(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hangs = entry(becomes="double(x) if not __import__('time').sleep(60) else 0")
    assert run(tree, hangs, words=("--limit", "2")) == 1
    assert "timed out: src/calculation.py" in capsys.readouterr().out
