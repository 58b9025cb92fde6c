"""Text that others wrote: what of it may reach a terminal, and how much.

Names of files, values in YAML, answers of a registry and output of a container may hold codes
that move the cursor, colour the screen, or write from right to left.
"""

from __future__ import annotations

import reprlib
import unicodedata

LONGEST = 2000
"""Characters of one line of a message; commands and paths are far shorter."""

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode's categories of what is obeyed and not seen: controls, formats, halves, separators."""

_EXCERPT = reprlib.Repr()
_EXCERPT.maxstring = _EXCERPT.maxother = _EXCERPT.maxlong = 120


def visible(text: str) -> str:
    r"""Return `text` with each character that a terminal would obey written as `\u001b`.

    Line feeds and tabs stay. It is the escape of JSON, so that JSON stays what it was.
    """
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        _escaped(one) if one not in "\n\t" and unicodedata.category(one) in _HIDDEN else one
        for one in text
    )


def message(text: str) -> str:
    """Return `text` as a message may show it: visible, and no line of it overlong."""
    return "\n".join(
        line if len(line) <= LONGEST else f"{line[:LONGEST]}… ({len(line):,} characters)"
        for line in visible(text).split("\n")
    )


def excerpt(value: object) -> str:
    """Return a short form of a value as a message quotes it."""
    return _EXCERPT.repr(value)


def _escaped(one: str) -> str:
    code = one.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{code[at:at + 4]}" for at in range(0, len(code), 4))
