"""What every contract says of a split; each reader adds which samples are in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from trimaran import strict
from trimaran.data.origins import Size

Percent = Annotated[int, Field(ge=0, le=100)]


class Split(strict.Model):
    """Which samples a split has; `samples` says how many, None where it is not known before."""

    if TYPE_CHECKING:
        @property
        def samples(self) -> int | None:
            """How many samples it has."""


class Counted(Split):
    """How many samples a split has."""

    samples: Size
