"""Read `site/published.yaml`: published numbers that no recipe expects, with source and year."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimaran import paths, strict
from trimaran.strict import Finite

FILE = "site/published.yaml"

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class Source(strict.Model):
    """A publication: its title as cited, its year, and its address if it has one."""

    title: str
    year: Annotated[int, Field(ge=1980, le=2100)]
    url: Annotated[str, Field(pattern=r"^https://")] | None = None


class Figure(strict.Model):
    """One published number.

    Attributes:
        value: the number.
        unit: unit of the number.
        about: whether the source itself calls the number approximate.
        what: the measured quantity and the hardware.
        source: key of the source.
        place: section or table in the source.
    """

    value: Finite
    unit: str = ""
    about: bool = False
    what: str
    source: Key
    place: str | None = None

    @property
    def text(self) -> str:
        """The number with its unit."""
        return f"{'about ' if self.about else ''}{self.value:,.10g} {self.unit}".rstrip()


class Device(strict.Model):
    """Peak figures of a processor or an accelerator.

    The rates are in TFLOP/s, and the bandwidth in GB/s. `memory` is a text, such as `16 GB`.
    """

    fp16: Finite | None = None
    tensor: Finite | None = None
    fp32: Finite
    fp64: Finite
    memory: str
    bandwidth: Finite


class Table(strict.Model):
    """Peak figures of several devices from one source."""

    source: Key
    place: str
    devices: dict[str, Device]


class Published(strict.Model):
    """The content of `site/published.yaml`."""

    schema_: Literal[1] = Field(alias="schema")
    sources: dict[Key, Source]
    figures: dict[Key, Figure]
    hardware: Table

    @model_validator(mode="after")
    def _known(self) -> Published:
        for key, figure in self.figures.items():
            if figure.source not in self.sources:
                raise ValueError(f"figures.{key}: no source is called '{figure.source}'")
        if self.hardware.source not in self.sources:
            raise ValueError(f"hardware: no source is called '{self.hardware.source}'")
        return self


def load() -> Published:
    """Read `site/published.yaml` of the checkout.

    Raises:
        UsageError: the file is invalid; the message lists each fault with its line.
    """
    return strict.load(Published, paths.repository() / FILE)
