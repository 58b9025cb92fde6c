"""The blocks of commands in the hand-written pages of the site, and how each is tried."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from trimaran import paths

DOCS = paths.repository() / "site/docs"

_BLOCK = re.compile(
    r"(?:^<!-- (?P<how>[a-z]+)(?:: (?P<needs>[a-z ]+))? -->\n)?^```sh[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """One block: `how` is executed, real (by an engine) or parsed; `needs` are the engines."""

    how: str
    needs: tuple[str, ...]
    text: str


def blocks(page: str, text: str | None = None) -> Iterator[Block]:
    """Yield the blocks of a page by its place in `site/docs`, in order."""
    for found in _BLOCK.finditer((DOCS / page).read_text() if text is None else text):
        how = found["how"] or "executed"
        if how not in ("executed", "real", "parsed"):
            raise ValueError(f"{page}: a block cannot be {how}")
        yield Block(how, tuple((found["needs"] or "").split()), found["text"])
