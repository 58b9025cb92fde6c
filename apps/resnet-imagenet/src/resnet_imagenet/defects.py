"""Find the images of a batch that cannot be decoded, and the reason."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from resnet_imagenet import pipelines
from resnet_imagenet.pipelines import PipelineOptions, Preprocessing
from shards.formats.records import Bytes
from trainkit.data import bad

Sample = tuple[Bytes, Any, Any]
"""An encoded image, its label (1,), and random numbers for its augmentation (DRAWS,)."""


def undecodable(
    to: Preprocessing, options: PipelineOptions, samples: Sequence[Sample]
) -> Iterator[tuple[int, str]]:
    """Yield the index and the defect of each of `samples` that cannot be decoded."""
    return bad.undecodable(
        samples, lambda some: fails(to, options, some), lambda one: defect(one[0])
    )


def fails(to: Preprocessing, options: PipelineOptions, samples: Sequence[Sample]) -> bool:
    """Return whether the pipeline raises an error for a batch of `samples`."""
    encoded, labels, draws = zip(*samples, strict=True)
    inputs: list[Any] = [list(encoded), np.stack(labels)]
    if options.training:
        inputs.append(np.stack(draws))
    source = itertools.repeat(tuple(inputs))
    try:
        pipelines.pipeline(to, source, options, batch=len(samples)).run()
    except RuntimeError:
        return True
    return False


def defect(encoded: Bytes) -> str | None:
    """Return the defect of one image file, or None if DALI can decode the whole image.

    DALI does not report the cause. The result therefore contains the first bytes of the file.
    """
    try:
        pipelines.decoding(itertools.repeat([encoded])).run()
    except RuntimeError:
        start = encoded[:8].tobytes()
        return f"cannot be decoded as an image ({len(encoded)} bytes, beginning with {start!r})"
    return None
