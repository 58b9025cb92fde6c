"""Variants of framework images: the same image with more in it, said once for all of them.

`containers/variants/NAME.yaml` says what is added, NAME.in which wheels; an `image.yaml` with
`variant` and `of` is the variant of one framework image, and its folder holds the locks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran import paths, strict
from trimaran.images.parts import Lines, Name, Pattern, Place, Plain, Relative, Variable


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


def file_of(name: str) -> Path:
    """Return the file `name` of those that say what variants add."""
    return paths.repository() / "containers/variants" / name
