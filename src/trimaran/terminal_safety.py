"""Make external text safe for a terminal: escape control characters, and limit its length.

File names, values in YAML, answers of a registry and output of a container may contain control
codes that move the cursor, change colours, or write from right to left.
"""

from __future__ import annotations

import reprlib
import unicodedata

LONGEST = 2000
"""Maximum number of characters in a line of a message; longer lines are shortened.

Commands and paths are usually far shorter.
"""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories of invisible characters: controls, formats, surrogates, separators."""

_EXCERPT = reprlib.Repr()
_EXCERPT.maxstring = _EXCERPT.maxother = _EXCERPT.maxlong = 120


def visible(text: str) -> str:
    r"""Return `text` with each control character in the form `\u001b`; line feeds and tabs stay.

    JSON uses the same escapes, so that a JSON text keeps its meaning.
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        _escaped(one) if one not in "\n\t" and unicodedata.category(one) in _HIDDEN else one
        for one in text
    )


def message(text: str) -> str:
    """Return `text` for a message, with control characters escaped and long lines shortened."""
    return "\n".join(
        line if len(line) <= LONGEST else f"{line[:LONGEST]}… ({len(line):,} characters)"
        for line in visible(text).split("\n")
    )


def excerpt(value: object) -> str:
    """Return a short representation of a value, for quoting in a message."""
    return _EXCERPT.repr(value)


def _escaped(one: str) -> str:
    code = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at:at + 4]}" for at in range(0, len(code), 4))
