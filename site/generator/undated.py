"""Measured numbers without date and source: refused in pages by hand and in adopted documents."""

from __future__ import annotations

import re

from trimaran.errors import UsageError

_UNIT = r"%|(?:img|images|clips|examples|samples)/s|[KMGT]i?B(?:/s)?|[GT]FLOP/s|dB|points?|times"
_TIME = r"(?:ms|s|h|min|seconds?|minutes?|hours?|days?)"
_IN_WORDS = (
    rf"(?:an?\s(?:minute|hour)|(?:two|three|four|five|six|seven|eight|nine|ten|twelve)\s{_TIME})"
)

_MEASURED = re.compile(
    rf"(?:\d[\d.,]*)?\d(?:\s?(?:{_UNIT}|{_TIME})|[x\u00d7])(?![\w-])"
    rf"|\b(?:takes?|took)\b[^.,:;|]*?\s{_IN_WORDS}\b"
)
"""A number with a unit that is measured. Operations are counted, so that no FLOP is here; a time in
words is measured where something takes it, and else often a figure of speech."""

_DATED = re.compile(
    r"\b(?:19|20)\d\d-\d\d-\d\d\b"
    r"|\([^()]*\b(?:19|20)\d\d(?=[,;:)])[^()]*\)"
    r"|\barXiv:\d{4}\.\d{4,5}\b"
)
"""What says where and when: a day, a source with its year in brackets, a paper by its number."""

_NOT_OF_THE_PAGE = re.compile(
    r"\{\{.*?\}\}"
    rf"|`[^`]*`(?:\s\([\d.,]+\s{_TIME})?"
    r"|\]\([^()\s]*\)"
    rf"|\b(?:after|every|within|gives? the \w+)\s[\d.,]+\s{_TIME}"
    r"|\d\sGiB of (?:disk|memory)\b[^|.]*",
    re.DOTALL,
)
"""What is no number that the page claims, or one that is set and not measured.

A lookup brings date and source of its own number, and of no other. Code is typed, with its default
in brackets behind an option; a link's target is a name. A program looks every, gives up within and
ends after so many seconds. Room that has to be free is a limit.
"""

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
    parts, line = [_claimed(part) for part in _PARTS.split(text)], 1
    for number, part in enumerate(parts):
        if (found := _MEASURED.search(part)) and not _dated(parts, number):
            at = line + part.count("\n", 0, found.start())
            raise UsageError(
                f"{place}:{at}: '{' '.join(found[0].split())}' has neither date nor source",
                hint="take it from evidence, a recipe or site/published.yaml, or say whose",
            )
        line += part.count("\n")


def _claimed(part: str) -> str:
    """Return a part with blanks for all that is no claim of the page; its lines stay."""
    if part.startswith(("```", "    ")):
        return "\n" * part.count("\n")
    return _NOT_OF_THE_PAGE.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), part)


def _dated(parts: list[str], number: int) -> bool:
    """Return whether a part has a date, a table also in the text around it."""
    said = [parts[number]]
    if _table(said[0]):
        for around in (reversed(parts[:number]), iter(parts[number + 1 :])):
            said += [next((part for part in around if part.strip() and not _table(part)), "")]
    return any(_DATED.search(one) for one in said)


def _table(part: str) -> bool:
    return part.lstrip().startswith("|")
