"""Variants of framework images: a framework image with additional packages.

`containers/variants/NAME.yaml` defines what the variant NAME adds to any framework image, and
NAME.in lists its wheels. An `image.yaml` with `variant` and `of` applies a variant to one framework
image; its folder contains the locks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran import paths, strict
from trimaran.images.parts import Lines, Name, Pattern, Place, Plain, Relative, Variable


class VariantOf(strict.Model):
    """An `image.yaml` with the names of a variant and of the framework image that it extends."""

    schema_: Literal[1] = Field(alias="schema")
    variant: Name
    of: Name


class Variant(strict.Model):
    """The content of `containers/variants/NAME.yaml`.

    Attributes:
        summary: text after the name of the framework image.
        description: text after the description of the framework image.
        debian: additional Debian packages.
        keep: patterns in `python.remove` of the framework image that do not apply.
        environment: additional variables.
        files: additional files.
        test: the self-test; it replaces that of the framework image.
        help: text after the help of the framework image.
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
    """Return the path of the file `name` in `containers/variants`."""
    return paths.repository() / "containers/variants" / name
