"""Records that cannot be decoded: counted, named, tolerated up to a limit."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from resnet_imagenet import pipelines
from resnet_imagenet.pipelines import Preprocessing, Way
from trainkit.data.formats.mapped import Bytes
from trainkit.exits import DataError

Sample = tuple[Bytes, Any, Any]
"""An encoded image, its label (1,), its draws (DRAWS,)."""


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
    to: Preprocessing, way: Way, samples: Sequence[Sample]
) -> Iterator[tuple[int, str]]:
    """Yield number and defect of those `samples` that the pipeline cannot process, by halving."""
    if not fails(to, way, samples):
        return
    if len(samples) > 1:
        half = len(samples) // 2
        yield from undecodable(to, way, samples[:half])
        rest = undecodable(to, way, samples[half:])
        yield from ((half + number, text) for number, text in rest)
        return
    text = defect(samples[0][0])
    if text is not None:  # else the pipeline itself is at fault, or the machine
        yield 0, text


def fails(to: Preprocessing, way: Way, samples: Sequence[Sample]) -> bool:
    """Return whether the pipeline fails with a batch of `samples`."""
    encoded, labels, draws = zip(*samples, strict=True)
    inputs: list[Any] = [list(encoded), np.stack(labels)]
    if way.training:
        inputs.append(np.stack(draws))
    source = itertools.repeat(tuple(inputs))
    try:
        pipelines.pipeline(to, source, way, batch=len(samples)).run()
    except RuntimeError:
        return True
    return False


def defect(encoded: Bytes) -> str | None:
    """Return what is wrong with one image file, or None if it can be decoded as a whole.

    DALI's own text names its operators and no cause, so the content speaks instead.
    """
    try:
        pipelines.decoding(itertools.repeat([encoded])).run()
    except RuntimeError:
        start = encoded[:8].tobytes()
        return f"cannot be decoded as an image ({len(encoded)} bytes, beginning with {start!r})"
    return None
