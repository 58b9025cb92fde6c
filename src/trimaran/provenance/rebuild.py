"""Build an image a second time from its lock, and compare the two images."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trimaran.engines import Engine, image_contents, require
from trimaran.engines.image_contents import SAME_ENGINE, Difference, Reasons
from trimaran.errors import BuildError
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.reporting import Reporter


@dataclass(frozen=True)
class Comparison:
    """The comparison of two builds of an image.

    Attributes:
        packages: number of compared Debian and Python packages.
        files: number of compared files, folders and links.
        differences: all differences, including those with a known reason.
        identical: whether the two images are equal byte by byte.
    """

    packages: int
    files: int
    differences: list[Difference]
    identical: bool

    @property
    def equal(self) -> bool:
        """Whether every difference between the two builds has a known reason."""
        return not image_contents.unexplained(self.differences)


def check(engine: Engine, image: Image, *, base: str | None, reporter: Reporter) -> Comparison:
    """Build `image` again, offline and in another folder, and compare it with the first build.

    Args:
        engine: engine that has the image.
        image: definition of the image; the framework image of an app image is not built again.
        base: value of `--base` in the first build; None: it was not given.
        reporter: shows the progress of the second build.

    Raises:
        UsageError: The engine is the host engine, which has no images.
        BuildError: The image is not built, cannot be built again, or the second build has another
            base image.
    """
    *_, built = [require(engine, part) for part in definition.chain(image)]
    with reporter.bar(f"inventory of {image.name}", None):
        before = image_contents.of(engine, built)
    with engine.again(image, base=base, reporter=reporter) as second:
        if second.inputs != built.inputs:
            raise BuildError(
                f"{image.name}: the second build has another base image than the first",
                code="base-different", hint="repeat the option --base of the first build",
            )
        with reporter.bar(f"inventory of the second {image.name}", None):
            after = image_contents.collect(engine, second)
    return Comparison(
        packages=len(before.debian) + len(before.python), files=len(before.files),
        differences=before.differences(after, _reasons(image)),
        identical=second.digest == built.digest,
    )


def _reasons(image: Image) -> Reasons:
    """Return the harmless differences between two builds of `image`, by kind and name.

    Besides those of all images, they are the folders of caches, which can be new in each container.
    """
    folders = {*definition.caches(image), *definition.compiler_caches(image)}
    return {
        **SAME_ENGINE,
        **{("environment", re.escape(name)): "a folder of the container" for name in folders},
    }
