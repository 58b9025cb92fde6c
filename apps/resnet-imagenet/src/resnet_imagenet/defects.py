"""What is wrong with an image: which of a batch cannot be decoded, and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from resnet_imagenet import pipelines
from resnet_imagenet.pipelines import Preprocessing, Way
from shards.formats.records import Bytes
from trainkit.data import bad

Sample = tuple[Bytes, Any, Any]
"""An encoded image, its label (1,), its draws (DRAWS,)."""


def undecodable(
    to: Preprocessing, way: Way, samples: Sequence[Sample]
) -> Iterator[tuple[int, str]]:
    """Yield number and defect of those `samples` that the pipeline cannot process."""
    return bad.undecodable(samples, lambda some: fails(to, way, some), lambda one: defect(one[0]))


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
