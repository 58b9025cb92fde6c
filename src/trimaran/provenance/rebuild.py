"""Build an image a second time from its lock, and compare what came out with the first."""

from __future__ import annotations

from dataclasses import dataclass

from trimaran.engines import Engine, image_contents, require
from trimaran.engines.image_contents import Difference
from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.reporting import Reporter


@dataclass(frozen=True)
class Comparison:
    """What a second build of an image gave.

    Attributes:
        packages: how many Debian and Python packages were compared.
        files: how many files, folders and links were compared.
        differences: all of them, those with a known reason included.
        identical: the images are equal as a whole, byte by byte.
    """

    packages: int
    files: int
    differences: list[Difference]
    identical: bool

    @property
    def equal(self) -> bool:
        """Whether everything that differs has a known reason."""
        return not image_contents.unexplained(self.differences)


def check(engine: Engine, image: Image, *, base: str | None, reporter: Reporter) -> Comparison:
    """Build `image` again, offline and aside, and compare it with the one that is built.

    Args:
        engine: which has the image.
        image: its definition; the framework image below an app image is not built again.
        base: the base that was given for the first build, if one was.
        reporter: is told of the second build.

    Raises:
        UsageError: the engine is the host, which has no images.
        BuildError: the image is not built, cannot be built again, or not on the same base.
    """
    *_, built = [require(engine, part) for part in definition.chain(image)]
    with reporter.bar(f"inventory of {image.name}", None):
        before = image_contents.of(engine, built)
    with engine.again(image, base=base, reporter=reporter) as second:
        if second.inputs != built.inputs:
            raise BuildError(
                f"{image.name}: the second build stands on another base than the first",
                hint="give --base as for the first build",
            )
        with reporter.bar(f"inventory of the second {image.name}", None):
            after = image_contents.collect(engine, second)
    return Comparison(
        packages=len(before.debian) + len(before.python), files=len(before.files),
        differences=before.differences(after), identical=second.digest == built.digest,
    )
