"""Tests that only `trainkit.torch` imports PyTorch, that only `trainkit.tensorflow` imports
TensorFlow, and that the README lists all modules."""

import ast
import re
from pathlib import Path

import pytest

import trainkit

PACKAGE = Path(trainkit.__file__).parent
README = Path(__file__).parents[1] / "README.md"
FRAMEWORKS = ("torch", "tensorflow")
NEUTRAL = [
    path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] not in FRAMEWORKS
]
FOREIGN = {"torch", "tensorflow", "keras", "nvidia", "horovod", "jax"}


def imported(path: Path) -> set[str]:
    """Return the full names of all modules that the file `path` imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", NEUTRAL, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_neutral_half_imports_no_framework_nor_the_half_of_one(path: Path) -> None:
    used = imported(path)
    assert not {name.split(".")[0] for name in used} & FOREIGN
    assert not {name for name in used for half in FRAMEWORKS if name.startswith(f"trainkit.{half}")}


@pytest.mark.parametrize("half", ["", *FRAMEWORKS])
def test_the_readme_says_what_each_module_gives(half: str) -> None:
    head = f"| module of `trainkit.{half}` |" if half else "| module |"
    table = README.read_text().partition(head)[2].partition("\n\n")[0]
    first = "".join(row.split("|")[1] for row in table.splitlines()[2:])
    shown = re.findall(r"`(\w+)`", first)
    assert sorted(shown) == sorted(path.stem for path in (PACKAGE / half).glob("[a-z]*.py"))


@pytest.mark.parametrize(("own", "other"), [("torch", "tensorflow"), ("tensorflow", "torch")])
def test_the_half_of_a_framework_knows_no_other(own: str, other: str) -> None:
    for path in (PACKAGE / own).rglob("*.py"):
        for name in imported(path):
            assert not name.startswith((other, f"trainkit.{other}")), path
