"""Variants of framework images: the same image with more in it, said once for all of them.

`containers/variants/NAME.yaml` says what is added, NAME.in which wheels; an `image.yaml` with
`variant` and `of` is the variant of one framework image, and its folder holds the locks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.images.parts import Lines, Name, Pattern, Place, Plain, Relative, Variable

if TYPE_CHECKING:
    from trimaran.images.definition import Image


class VariantOf(strict.Model):
    """An `image.yaml` that says only which variant it is, and of which framework image."""

    schema_: Literal[1] = Field(alias="schema")
    variant: Name
    of: Name


class Variant(strict.Model):
    """One `containers/variants/NAME.yaml`.

    Attributes:
        summary: what follows the name of the other image.
        debian: Debian packages more.
        keep: patterns of `python.remove` of the other image that are not removed.
        environment: beside that of the other image.
        files: beside those of the other image.
        test: the self-test, in place of the other one.
        help: what follows the help of the other image.
    """

    schema_: Literal[1] = Field(alias="schema")
    summary: Plain
    description: Lines
    debian: tuple[Name, ...]
    keep: tuple[Pattern, ...] = ()
    environment: dict[Variable, Plain] = Field(default_factory=dict)
    files: dict[Relative, Place]
    test: Place
    help: Lines


def folder() -> Path:
    """Return the folder that says what variants there are."""
    return paths.repository() / "containers/variants"


def wheels(name: str) -> Path:
    """Return the file with the wheels that the variant adds."""
    return folder() / f"{name}.in"


def changes(image: Image, name: str) -> dict[str, Any]:
    """Return the fields in which the variant `name` differs from `image`.

    Raises:
        UsageError: there is no such variant, or `image` has no Debian and Python to add to.
    """
    adds = strict.load(Variant, folder() / f"{name}.yaml")
    if image.python is None or not image.debian:
        raise UsageError(f"{image.folder / 'image.yaml'}: a variant needs 'debian' and 'python'")
    kept = tuple(pattern for pattern in image.python.remove if pattern not in adds.keep)
    return {
        "summary": f"{image.name} {adds.summary}",
        "description": f"{image.description.rstrip()} {adds.description}",
        "short": f"{image.short}-{name}",
        "debian": tuple(dict.fromkeys((*image.debian, *adds.debian))),
        "python": image.python.model_copy(update={"remove": kept}),
        "environment": {**image.environment, **adds.environment},
        "files": {**image.files, **adds.files},
        "test": adds.test,
        "help": f"{image.help.rstrip()}\n\n{adds.help}",
    }
