"""Build an image twice, to compare the results byte by byte."""

from __future__ import annotations

import os
from unittest.mock import patch

from trimaran.engines.apptainer import Apptainer
from trimaran.images.definition import Image
from trimaran.reporting import Silent


def digests(image: Image) -> list[str | None]:
    """Return the digests of two builds of `image` with one date; each compiles everything anew.

    The packages of the image must be in the cache.
    """
    found: list[str | None] = []
    with patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "1577836800"}):
        for _ in range(2):
            with Apptainer().again(image, base=None, reporter=Silent()) as built:
                found.append(built.digest)
    return found
