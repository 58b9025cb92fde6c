"""Error codes: each code is documented and used, and each error has a code."""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from pathlib import Path

import pytest

from trimaran import error_codes, paths

ROOT = paths.repository()
SOURCES = sorted((ROOT / "src/trimaran").rglob("*.py"))
CLASSES = {"UsageError", "BuildError", "RunError"}
"""The error classes without a default code; each error of these classes must get a code."""

TABLE = ROOT / "apps/trainkit/src/trainkit/error_codes.py"
APPS = [
    path for place in ("apps", "tests/toys/apps", "site/docs/tutorials/slope/apps")
    for path in sorted((ROOT / place).glob("*/src/**/*.py")) if path != TABLE
]
CLASSES_OF_APPS = {"AppError", "ArgumentError", "DataError", "DivergedError", "NoSpaceError"}
"""The error classes of trainkit, the library of the apps, that have several codes."""

CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+|fault|stopped")


def codes_of_apps() -> dict[str, str]:
    """Return code -> text from the table of trainkit, the apps' library, which is not installed."""
    [table] = [
        node.value for node in ast.parse(TABLE.read_text()).body if isinstance(node, ast.Assign)
    ]
    codes: dict[str, str] = ast.literal_eval(table)
    return codes


def literals(path: Path) -> set[str]:
    """Return the strings that a module passes as `code`."""
    tree = ast.parse(path.read_text())
    given = {
        value.value for node in ast.walk(tree) if isinstance(node, ast.Call)
        for keyword in node.keywords if keyword.arg == "code"
        for value in ast.walk(keyword.value) if isinstance(value, ast.Constant)
        if isinstance(value.value, str)
    }
    return {text for text in given if CODE.fullmatch(text)}


def errors_without_code(path: Path, classes: Set[str] = CLASSES) -> list[int]:
    """Return the line numbers at which a module creates an error without a code."""
    return [
        call.lineno for call in ast.walk(ast.parse(path.read_text())) if isinstance(call, ast.Call)
        if ast.unparse(call.func).split(".")[-1] in classes and not any(
            keyword.arg in ("code", None) for keyword in call.keywords
        )
    ]


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_each_error_is_made_with_its_code(path: Path) -> None:
    assert errors_without_code(path) == []


@pytest.mark.parametrize("path", APPS, ids=str)
def test_each_error_of_an_app_is_made_with_its_code(path: Path) -> None:
    assert errors_without_code(path, CLASSES_OF_APPS) == []
    assert literals(path) <= codes_of_apps().keys()


def test_an_error_without_code_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('raise UsageError("x")\nraise RunError("x", code="data-damaged")\n')
    assert errors_without_code(path) == [1]


def test_each_code_that_is_given_is_documented() -> None:
    for path in SOURCES:
        assert literals(path) <= error_codes.CODES.keys(), path


def test_each_documented_code_is_used() -> None:
    text = "\n".join(path.read_text() for path in SOURCES if path.name != "error_codes.py")
    assert [code for code in error_codes.CODES if f'"{code}"' not in text] == []


def test_each_documented_code_of_the_apps_is_used() -> None:
    text = "\n".join(path.read_text() for path in APPS)
    assert [code for code in codes_of_apps() if f'"{code}"' not in text] == []


@pytest.mark.parametrize("codes", [error_codes.CODES, codes_of_apps()], ids=["tool", "apps"])
def test_codes_and_meanings_have_one_form(codes: dict[str, str]) -> None:
    for code, meaning in codes.items():
        assert CODE.fullmatch(code)
        assert meaning[0].isupper()
        assert meaning.endswith(".")
