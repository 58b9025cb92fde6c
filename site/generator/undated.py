"""Measured numbers without date and source: refused in pages by hand and in adopted documents."""

from __future__ import annotations

import re

from trimaran.errors import UsageError

_MEASURED = re.compile(
    r"\d\s?(?:%|img/s|clips/s|[MGT]B/s|[GT]FLOP/s|dB|GB|MB|times as)(?![A-Za-z])"
)
_DATED = re.compile(r"\{\{|\b(?:19|20)\d\d\b|arXiv:\d")
"""A number with a unit that is measured; and what says where and when. Operations are counted."""

_PARTS = re.compile(r"(\n(?:[ \t]*\n)+|^```.*?^```$)", re.MULTILINE | re.DOTALL)
"""Between the paragraphs of a page; a block of code is a part of its own."""


def refuse(text: str, place: str) -> None:
    """Refuse a measured number in a paragraph that has no date, and no source with its year.

    A table is dated by the paragraph above it or by that below it.

    Args:
        text: a page's Markdown.
        place: of its file, for the message.

    Raises:
        UsageError: there is one; the message has its line.
    """
    parts, line = _PARTS.split(text), 1
    for number, part in enumerate(parts):
        fenced = part.startswith(("```", "    "))
        if not fenced and (found := _MEASURED.search(part)) and not _dated(parts, number):
            at = line + part.count("\n", 0, found.start())
            raise UsageError(
                f"{place}:{at}: '{found[0]}' has neither date nor source",
                hint="take it from evidence, a recipe or site/published.yaml, or say whose",
            )
        line += part.count("\n")


def _dated(parts: list[str], number: int) -> bool:
    """Return whether a part has a date, a table also in the text around it."""
    said = [parts[number]]
    if _table(said[0]):
        for around in (reversed(parts[:number]), iter(parts[number + 1 :])):
            said += [next((part for part in around if part.strip() and not _table(part)), "")]
    return any(_DATED.search(one) for one in said)


def _table(part: str) -> bool:
    return part.lstrip().startswith("|")
