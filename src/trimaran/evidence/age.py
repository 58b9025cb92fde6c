"""Determine whether evidence is stale."""

from __future__ import annotations

import datetime as dt

STALE = "older than 12 months"
"""The text that describes stale evidence.

The limit of 12 months is a choice of this project, because frameworks change within a year.
"""


def is_stale(day: dt.date, today: dt.date) -> bool:
    """Return whether evidence with the date `day` is older than 12 months on the date `today`.

    The same day of the next year is not stale; 29 February counts as 1 March of the next year.
    """
    try:
        birthday = day.replace(year=day.year + 1)
    except ValueError:
        birthday = dt.date(day.year + 1, 3, 1)
    return today > birthday
