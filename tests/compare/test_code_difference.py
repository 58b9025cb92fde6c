"""Test the count of lines in which two files differ, and files that cannot be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from refusals import refused
from trimaran.compare.code_difference import changed_lines, code
from trimaran.errors import UsageError

TEXT = '''\
"""A module
of two lines."""

import a
from b import (
    c,
)

VALUE = "text"
"""A text below a value, which is code."""


class Boat:
    """A boat."""

    def sail(self):
        """Sail.

        Far.
        """
        import d

        def tack():
            """Tack."""
            return "not a docstring"

        return tack()
'''


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_docstrings_imports_of_the_module_and_blank_lines_do_not_count(tmp_path: Path) -> None:
    assert [line.text for line in code(write(tmp_path, "boat.py", TEXT))] == [
        'VALUE = "text"', '"""A text below a value, which is code."""', "class Boat:",
        "    def sail(self):", "        import d", "        def tack():",
        '            return "not a docstring"', "        return tack()",
    ]


def test_a_changed_line_is_one_to_remove_and_one_to_add(tmp_path: Path) -> None:
    one = write(tmp_path, "one.py", "import a\na.fit(1)\nend()\n-x\n")
    two = write(tmp_path, "two.py", '"""Two."""\nimport b\n\na.fit(2)\nlog()\nend()\n++x\n')
    assert changed_lines(one, two) == ["-a.fit(1)", "+a.fit(2)", "+log()", "--x", "+++x"]
    assert len(changed_lines(two, one)) == 5
    assert changed_lines(one, one) == []


def test_comments_do_not_count(tmp_path: Path) -> None:
    one = write(tmp_path, "one.py", "# One.\na = 1\nb = '# text'  # why\nc = 3\n")
    two = write(tmp_path, "two.py", "a = 1  # a comment\n\n    # Two.\nb = '# text'\nc = 4  # c\n")
    assert changed_lines(one, two) == ["-c = 3", "+c = 4  # c"]
    three = write(tmp_path, "three.py", "a = 1\nb = '# other'\nc = 3\n")
    assert len(changed_lines(one, three)) == 2


def test_a_file_that_is_too_deeply_nested_is_named(tmp_path: Path) -> None:
    bad = write(tmp_path, "bad.py", "a = " + "(" * 50_000 + ")" * 50_000 + "\n")
    worse = write(tmp_path, "worse.py", "a = " + "-" * 200_000 + "1\n")
    for path in (bad, worse):
        with refused("file-invalid", path, kind=UsageError) as caught:
            code(path)
        assert "py_compile" in (caught.value.hint or "")


def test_a_file_that_is_not_python_and_one_that_is_missing_are_named(tmp_path: Path) -> None:
    good = write(tmp_path, "good.py", "a = 1\n")
    for text in ("def (", "a = 1\0\n"):
        bad = write(tmp_path, "bad.py", text)
        with refused("file-invalid", bad, kind=UsageError):
            changed_lines(good, bad)
    bad.write_bytes(b"\xff\xfe\n")
    with refused("file-invalid", bad, kind=UsageError):
        changed_lines(good, bad)
    with pytest.raises(UsageError, match=r"missing\.py"):
        changed_lines(good, tmp_path / "missing.py")
