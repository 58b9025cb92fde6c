"""What readers of arrays return, and what is packed as PNG files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from PIL import Image


class Samples(Protocol):
    """The samples of one split, read and checked: each so many grey frames of one size."""

    @property
    def name(self) -> str:
        """The split."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Frames of a sample, their height and width."""

    def __len__(self) -> int: ...

    def labels(self, number: int) -> tuple[int, ...]:
        """Return the classes of a sample."""

    def frames(self, number: int) -> Iterable[Image.Image]:
        """Return the frames of a sample."""

    def histogram(self) -> list[int]:
        """Return how often each grey value is in all frames."""
