"""Count and report records that cannot be decoded, and tolerate them up to a limit."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from trainkit.exits import DataError

S = TypeVar("S")


class UndecodableError(DataError, RuntimeError):
    """Error for a record that cannot be decoded.

    The class is also a RuntimeError, because a `Source` raises a RuntimeError for such a record.

    Attributes:
        defect: description of the damage, without the name of the record.
    """

    def __init__(self, name: str, defect: str) -> None:
        super().__init__(f"{name} {defect}", code="image-undecodable")
        self.defect = defect


def warn(text: str) -> None:
    """Print a warning about a tolerated record on stderr."""
    print(f"warning: {text}; another record takes its place", file=sys.stderr, flush=True)


class BadRecords:
    """The undecodable records of a run, shared by its loaders.

    Each rank counts the records that it read itself; `merge` adds the records of other ranks.

    Args:
        limit: number of undecodable records to tolerate (`--max-bad-records`).
        known: the value of `found` in the checkpoint from which the run resumes.

    Attributes:
        found: one text per record with its shard, number and defect, in the order of discovery.
        tell: function that is called with the text of each new record.
    """

    def __init__(self, limit: int = 0, known: Iterable[str] = ()) -> None:
        self.limit = limit
        self.found: list[str] = list(known)
        self.tell: Callable[[str], None] = warn

    def add(self, text: str) -> None:
        """Count a record that this rank could not decode, unless it is already counted.

        `text` describes the record by its shard, number and defect.

        Raises:
            DataError: the limit is exceeded; the message lists all records.
        """
        if text in self.found:
            return
        self.merge([text])
        self.tell(text)

    def merge(self, found: Iterable[str]) -> None:
        """Count the records `found` by other ranks; a record that is already known counts once.

        Raises:
            DataError: the limit is exceeded; the message lists all records.
        """
        self.found += [text for text in dict.fromkeys(found) if text not in self.found]
        if len(self.found) <= self.limit:
            return
        if len(self.found) == 1:
            raise DataError(
                f"{self.found[0]}; --max-bad-records N tolerates N such records",
                code="image-undecodable",
            )
        listed = "".join(f"\n  {text}" for text in self.found)
        raise DataError(
            f"{len(self.found)} records cannot be decoded, "
            f"more than --max-bad-records {self.limit}:{listed}",
            code="image-undecodable",
        )


def undecodable(
    samples: Sequence[S], fails: Callable[[Sequence[S]], bool], defect: Callable[[S], str | None]
) -> Iterator[tuple[int, str]]:
    """Yield the index and defect of each sample that cannot be processed, found by bisection.

    Args:
        samples: samples of a batch.
        fails: function that returns whether a batch of samples cannot be processed.
        defect: function that returns the defect of a sample, or None if the sample is intact.
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
    if text is not None:  # otherwise the fault is in the processing
        yield 0, text
