"""Check that an image is not larger than its definition allows.

A pull, and the copy to each node of a job, take time in proportion to the size of the SIF.
"""

from __future__ import annotations

from trimaran.engines import BuiltImage, Engine, image_contents
from trimaran.errors import BuildError
from trimaran.images.definition import Image

MEGABYTE = 10**6

LISTED = 5
"""Number of items that the error lists, largest first."""


def require(engine: Engine, image: Image, built: BuiltImage) -> None:
    """Check the size of a SIF against `max_megabytes` of its definition.

    Other engines do not keep an image as one compressed file, and are not checked.

    Raises:
        BuildError: the SIF is too large; the message lists the largest items in the image, with
            their sizes before compression.
    """
    limit = image.size_limit
    if limit is None or engine.name != "apptainer" or built.size <= limit * MEGABYTE:
        return
    items = image_contents.of(engine, built).largest(LISTED)
    raise BuildError(
        f"{image.name} has {built.size / MEGABYTE:,.0f} MB, and its limit is {limit:,} MB;"
        " largest items, unpacked: "
        + ", ".join(f"{item.path} {item.size / MEGABYTE:,.0f} MB" for item in items),
        code="image-too-large",
        hint="list in `python.remove` what no run needs, or raise `max_megabytes` in"
             f" {image.folder / 'image.yaml'}",
    )
