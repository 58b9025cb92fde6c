"""Variants of framework images: a file in `containers/variants` adds packages to such an image."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran import paths, strict
from trimaran.architectures import Architecture
from trimaran.images.parts import (
    Lines,
    Megabytes,
    Name,
    Pattern,
    Place,
    Plain,
    Relative,
    Variable,
)


class VariantOf(strict.Model):
    """An `image.yaml` with the names of a variant and of the framework image that it extends.

    Attributes:
        variant: name of a file in `containers/variants`, without its ending.
        of: name of the framework image.
        max_megabytes: as in `Image`, for the variant.
    """

    schema_: Literal[1] = Field(alias="schema")
    variant: Name
    of: Name
    max_megabytes: dict[Architecture, Megabytes] = Field(default_factory=dict)


class Variant(strict.Model):
    """The content of `containers/variants/NAME.yaml`.

    Attributes:
        summary: text that is appended to the name of the framework image.
        description: text that is appended to the description of the framework image.
        debian: additional Debian packages.
        keep: patterns in `python.remove` of the framework image whose files are not removed.
        environment: additional variables.
        files: additional files.
        test: the self-test, which replaces the self-test of the framework image.
        help: text that is appended to the help of the framework image.
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


def variant_file(name: str) -> Path:
    """Return the path of the file `name` in `containers/variants`."""
    return paths.repository() / "containers/variants" / name
