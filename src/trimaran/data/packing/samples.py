"""The interface of samples that are read from arrays and packed as PNG files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from PIL import Image


class Samples(Protocol):
    """The checked samples of one split; all have the same number and size of grey frames."""

    @property
    def name(self) -> str:
        """The name of the split."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of frames of a sample, their height and width in pixels."""

    def __len__(self) -> int: ...

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the classes of the sample `number`."""

    def frames(self, number: int) -> Iterable[Image.Image]:
        """Return the frames of the sample `number`."""

    def histogram(self) -> list[int]:
        """Return the number of pixels of all frames for each of the 256 grey values."""
