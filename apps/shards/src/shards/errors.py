"""The error of an unreadable shard."""

from __future__ import annotations


class ShardError(Exception):
    """Error for a missing or damaged shard, index or record; the message names it."""
