"""Find measured numbers without date and source in hand-written pages and documents."""

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
"""Matches a number with a unit of measurement, or a time in words after "take" or "took".

FLOP is not included, because operations are counted and not measured. Other times in words may be
figures of speech.
"""

_DATED = re.compile(
    r"\b(?:19|20)\d\d-\d\d-\d\d\b"
    r"|\([^()]*\b(?:19|20)\d\d(?=[,;:)])[^()]*\)"
    r"|\barXiv:\d{4}\.\d{4,5}\b"
)
"""Matches a date or a source: a day, a source with its year in brackets, or an arXiv number."""

_NOT_OF_THE_PAGE = re.compile(
    r"\{\{.*?\}\}"
    rf"|`[^`]*`(?:\s\([\d.,]+\s{_TIME})?"
    r"|\]\([^()\s]*\)"
    rf"|\b(?:after|every|within|gives? the \w+)\s[\d.,]+\s{_TIME}"
    r"|\d\sGiB of (?:disk|memory)\b[^|.]*",
    re.DOTALL,
)
"""Matches text with numbers that are not measured results.

A lookup, `{{ ... }}`, inserts the date and the source of its number. Code, defaults of options in
brackets, and targets of links are not results. Intervals, timeouts and required memory or disk are
settings.
"""

_PARTS = re.compile(r"(\n(?:[ \t]*\n)+|^```.*?^```$)", re.MULTILINE | re.DOTALL)
"""Separators of paragraphs; a block of code is a separate part."""


def refuse(text: str, place: str) -> None:
    """Raise UsageError for a measured number in a paragraph without date and source.

    The date of a table may be in the paragraph above or below it.

    Args:
        text: Markdown of a page.
        place: path of its file, for the message.

    Raises:
        UsageError: The page has such a number; the message has its line.
    """
    parts, line = [_claimed(part) for part in _PARTS.split(text)], 1
    for number, part in enumerate(parts):
        if (found := _MEASURED.search(part)) and not _dated(parts, number):
            at = line + part.count("\n", 0, found.start())
            raise UsageError(
                f"{place}:{at}: '{' '.join(found[0].split())}' has neither date nor source",
                hint="insert it from evidence, a recipe or site/published.yaml, or name its source",
            )
        line += part.count("\n")


def _claimed(part: str) -> str:
    """Return a part of a page, with `_` in place of text that is no measured result.

    Line breaks are kept, so that the number of a line can be counted.
    """
    if part.startswith(("```", "    ")):
        return "\n" * part.count("\n")
    return _NOT_OF_THE_PAGE.sub(lambda found: re.sub(r"[^\n]", "_", found[0]), part)


def _dated(parts: list[str], number: int) -> bool:
    """Return whether `parts[number]`, a paragraph of the page, has a date or source.

    The date or source of a table may also be in the nearest text before or after it.
    """
    said = [parts[number]]
    if _table(said[0]):
        for around in (reversed(parts[:number]), iter(parts[number + 1 :])):
            said += [next((part for part in around if part.strip() and not _table(part)), "")]
    return any(_DATED.search(one) for one in said)


def _table(part: str) -> bool:
    return part.lstrip().startswith("|")
