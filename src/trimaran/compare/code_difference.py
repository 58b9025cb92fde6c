"""Find the lines of code in which two Python files differ."""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from trimaran.errors import UsageError, unreadable


class Line(NamedTuple):
    """A line of code: the whole line (`text`), and the line without its comment (`code`)."""

    code: str
    text: str


def changed_lines(before: Path, after: Path) -> list[str]:
    """Return the lines of code to remove from `before` (`-`) and to add (`+`) to get `after`.

    A changed line is listed twice: its old text is removed, and its new text is added. Changes of
    comments are ignored.

    Raises:
        UsageError: a file cannot be read or is not Python.
    """
    old, new = code(before), code(after)
    compared = difflib.SequenceMatcher(None, [one.code for one in old], [one.code for one in new])
    found = []
    for kind, start, end, start_new, end_new in compared.get_opcodes():
        if kind != "equal":
            found += [f"-{one.text}" for one in old[start:end]]
            found += [f"+{one.text}" for one in new[start_new:end_new]]
    return found


def code(path: Path) -> list[Line]:
    """Return the lines of a Python file that contain code.

    Docstrings, comments, blank lines and imports at module level are left out.

    Raises:
        UsageError: the file cannot be read or is not Python.
    """
    try:
        text = path.read_text(encoding="utf-8")
        tree, comments = ast.parse(text), _comments(text)
    except OSError as error:
        raise unreadable(path, error, UsageError) from error
    except (ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError) as error:
        # A deeply nested expression exhausts the stack of the parser.
        reason = str(error) or "it is too deeply nested"
        raise UsageError(f"{path} is not a Python file: {reason}", code="file-invalid",
                         hint=f"correct it; `python -m py_compile {path}` shows the line"
                         ) from error
    hidden = {
        line for node in _left_out(tree)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    # Not `splitlines`, which also splits at characters that do not end a line of Python.
    lines = [Line(line[: comments.get(at)].rstrip(), line)
             for at, line in enumerate(text.split("\n"), start=1) if at not in hidden]
    return [line for line in lines if line.code]


def _comments(text: str) -> dict[int, int]:
    """Return the start column of each comment, keyed by the number of its line."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return dict(token.start for token in tokens if token.type == tokenize.COMMENT)


def _left_out(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the import statements at module level, and all docstrings."""
    yield from (node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and ast.get_docstring(node) is not None:
                yield first
