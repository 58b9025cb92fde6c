"""Insert the generated pages into the navigation of `nav.yml`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from generator.pages import Page

MARK = "generated:"
"""Prefix of an entry of the navigation that stands for several generated pages.

A folder follows the prefix. The generated pages below this folder replace the entry.
"""


def expand(entries: Sequence[Any], pages: Sequence[Page]) -> list[Any]:
    """Return the navigation with each `generated: FOLDER` replaced by the pages of that folder."""
    out: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.startswith(MARK):
            out += _below(entry.removeprefix(MARK).strip(), pages)
        elif isinstance(entry, dict):
            out.append({
                title: expand(content, pages) if isinstance(content, list) else content
                for title, content in entry.items()
            })
        else:
            out.append(entry)
    return out


def _below(folder: str, pages: Sequence[Page]) -> list[Any]:
    """Return the pages below a folder, grouped by section; pages without section come first."""
    sections: dict[str, list[Any]] = {}
    for page in pages:
        if page.place.startswith(f"{folder}/") and page.section is not None:
            sections.setdefault(page.section, []).append({page.title: page.place})
    flat = sections.pop("", [])
    return [*flat, *({title: content} for title, content in sections.items())]
