"""Records that cannot be decoded: counted, named, tolerated up to a limit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from trainkit.exits import DataError

S = TypeVar("S")


class UndecodableError(DataError, RuntimeError):
    """A record that no decoder takes; for a `Source` the RuntimeError that a decoder raises.

    Attributes:
        defect: what is wrong with it, without the record's name.
    """

    def __init__(self, name: str, defect: str) -> None:
        super().__init__(f"{name} {defect}")
        self.defect = defect


def warn(text: str) -> None:
    """Name a tolerated record on stderr."""
    print(f"warning: {text}; another record takes its place", file=sys.stderr, flush=True)


class BadRecords:
    """The undecodable records of a run, shared by its loaders.

    Each rank counts those that it met itself; `merge` adds what the others found.

    Args:
        limit: how many to tolerate (`--max-bad-records`).
        known: `found` of the checkpoint that a run goes on from.

    Attributes:
        found: one text per record, naming shard and record, in the order of discovery.
        tell: is called with the text of each new one.
    """

    def __init__(self, limit: int = 0, known: Iterable[str] = ()) -> None:
        self.limit = limit
        self.found: list[str] = list(known)
        self.tell: Callable[[str], None] = warn

    def add(self, text: str) -> None:
        """Count a record that was met.

        Raises:
            DataError: it is one too many; the message lists all.
        """
        if text in self.found:
            return
        self.merge([text])
        self.tell(text)

    def merge(self, found: Iterable[str]) -> None:
        """Count the records that other ranks found; those that are known count once.

        Raises:
            DataError: together they are too many; the message lists all.
        """
        self.found += [text for text in dict.fromkeys(found) if text not in self.found]
        if len(self.found) <= self.limit:
            return
        if len(self.found) == 1:
            raise DataError(f"{self.found[0]}; --max-bad-records N tolerates N such records")
        listed = "".join(f"\n  {text}" for text in self.found)
        raise DataError(
            f"{len(self.found)} records cannot be decoded, "
            f"more than --max-bad-records {self.limit}:{listed}"
        )


def undecodable(
    samples: Sequence[S], fails: Callable[[Sequence[S]], bool], defect: Callable[[S], str | None]
) -> Iterator[tuple[int, str]]:
    """Yield number and defect of those `samples` that cannot be processed, by halving.

    Args:
        samples: of a batch.
        fails: whether a batch of samples cannot be processed.
        defect: what is wrong with one, or None if the fault is not its own.
    """
    if not fails(samples):
        return
    if len(samples) > 1:
        half = len(samples) // 2
        yield from undecodable(samples[:half], fails, defect)
        rest = undecodable(samples[half:], fails, defect)
        yield from ((half + number, text) for number, text in rest)
        return
    text = defect(samples[0])
    if text is not None:  # else what processes them is at fault, or the machine
        yield 0, text
