"""The error of an unreadable shard."""

from __future__ import annotations


class ShardError(Exception):
    """A shard, its index or a record is missing or damaged; the message names it."""
