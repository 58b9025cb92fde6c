"""The table that commands show on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Table(NamedTuple):
    """A table with a title, whose cells are texts."""

    title: str
    columns: Sequence[str]
    rows: list[list[str]]
