"""The codes of errors: each is documented and used, each error has one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from trimaran import error_codes, paths

SOURCES = sorted((paths.repository() / "src/trimaran").rglob("*.py"))
CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+|fault|stopped")


def literals(path: Path) -> set[str]:
    """Return the strings that a module gives as `code`."""
    tree = ast.parse(path.read_text())
    given = {
        value.value for node in ast.walk(tree) if isinstance(node, ast.Call)
        for keyword in node.keywords if keyword.arg == "code"
        for value in ast.walk(keyword.value) if isinstance(value, ast.Constant)
        if isinstance(value.value, str)
    }
    return {text for text in given if CODE.fullmatch(text)}


def test_each_code_that_is_given_is_documented() -> None:
    for path in SOURCES:
        assert literals(path) <= error_codes.CODES.keys(), path


def test_codes_and_meanings_have_one_form() -> None:
    for code, meaning in error_codes.CODES.items():
        assert CODE.fullmatch(code)
        assert meaning[0].isupper()
        assert meaning.endswith(".")
