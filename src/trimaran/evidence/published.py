"""Published numbers that no recipe expects, each with source and year: `site/published.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimaran import paths, strict
from trimaran.report.run_evidence import Finite

FILE = "site/published.yaml"

Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class Source(strict.Model):
    """A publication: title as it is cited, its year, and its address where it has one."""

    title: str
    year: Annotated[int, Field(ge=1980, le=2100)]
    url: Annotated[str, Field(pattern=r"^https://")] | None = None


class Figure(strict.Model):
    """One published number.

    Attributes:
        value: in `unit`.
        about: whether the source itself calls it approximate.
        what: what was measured, on what.
        source: key of its source.
        place: section or table in it.
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
    """Peak figures of a processor or an accelerator: TFLOP/s, GB, GB/s."""

    fp16: Finite | None = None
    tensor: Finite | None = None
    fp32: Finite
    fp64: Finite
    memory: str
    bandwidth: Finite


class Table(strict.Model):
    """Peak figures of several devices, from one source."""

    source: Key
    place: str
    devices: dict[str, Device]


class Published(strict.Model):
    """The whole file."""

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
    """Read the file of the checkout.

    Raises:
        UsageError: it does not validate; each fault has its line.
    """
    return strict.load(Published, paths.repository() / FILE)
