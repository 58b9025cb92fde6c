"""Write Markdown: tables, dates, code blocks, tabs, and links between pages."""

from __future__ import annotations

import datetime as dt
import html
import posixpath
import re
from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Return `text` for a cell of a Markdown table: on one line, with each `|` escaped."""
    return " ".join(str(text).split()).replace("|", r"\|")


def whole(text: str) -> str:
    """Return a number and its unit without a line break between them."""
    return text.replace(" ", "&nbsp;")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; a column whose head ends with `:` is aligned to the right."""
    marks = ["--:" if name.endswith(":") else "---" for name in head]
    lines = [[name.removesuffix(":") for name in head], marks]
    lines += [[cell(one) for one in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def moment(day: dt.date) -> str:
    """Return a date as HTML; `site.js` adds its age in the browser, at the time of reading."""
    return f'<time class="age" datetime="{day.isoformat()}">{day.isoformat()}</time>'


def code(text: str, language: str = "sh", title: str | None = None) -> str:
    """Return a block of code; the page has a button to copy it."""
    fence = "```" + language + (f' title="{title}"' if title else "")
    return f"{fence}\n{text.rstrip()}\n```"


def indented(text: str, by: int = 4) -> str:
    """Return `text` with indented lines, as the content of a tab or a note."""
    return "\n".join(f"{' ' * by}{line}".rstrip() for line in text.splitlines())


def tabs(parts: Sequence[tuple[str, str]]) -> str:
    """Return tabs with these (title, content) pairs."""
    return "\n\n".join(f'=== "{title}"\n\n{indented(content)}' for title, content in parts)


def folded(title: str, content: str, kind: str = "note") -> str:
    """Return content that is hidden until the reader opens its title."""
    return f'??? {kind} "{title}"\n\n{indented(content)}'


def chip(text: str, kind: str = "") -> str:
    """Return a word in a small box."""
    return f'<span class="{f"chip {kind}".strip()}">{html.escape(text)}</span>'


def link(from_page: str, to: str) -> str:
    """Return the relative link from a page to another file of the site."""
    place, hash_, anchor = to.partition("#")
    if place == "" or place == from_page:
        return f"#{anchor}"
    return posixpath.relpath(place, posixpath.dirname(from_page) or ".") + hash_ + anchor


def named_heads(text: str) -> str:
    """Return a page in which empty table heads have a text for screen readers."""
    return _HEAD.sub(lambda found: re.sub(r"\|\s*(?=\|)", "| <span class=unseen>item</span> ",
                                          found[0]), text)


_HEAD = re.compile(r"^[ \t]*\|.*\|[ \t]*$(?=\n[ \t]*\|[\s|:-]*-[\s|:-]*\|[ \t]*$)", re.MULTILINE)


def comment(text: str) -> str:
    """Return the comment at the head of a YAML file as running text."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return " ".join(lines)
