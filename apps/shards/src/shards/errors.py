"""The error for a shard that is missing, damaged or cannot be read."""

from __future__ import annotations


class ShardError(Exception):
    """Error for a missing or damaged shard, index or record; the message names it."""
