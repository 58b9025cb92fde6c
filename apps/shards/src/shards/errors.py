"""The error of a shard that cannot be read."""

from __future__ import annotations


class ShardError(Exception):
    """A shard, its index or a record is missing or damaged; the message names it."""
