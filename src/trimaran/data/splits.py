"""The keys of a split that all contracts share; each reader adds how its samples are chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from trimaran import strict
from trimaran.data.origins import Size

Percent = Annotated[int, Field(ge=0, le=100)]


class Split(strict.Model):
    """One split of a data set."""

    if TYPE_CHECKING:
        @property
        def samples(self) -> int | None:
            """The number of samples (None: unknown before the files are read)."""


class Counted(Split):
    """A split whose number of samples is in the contract."""

    samples: Size
