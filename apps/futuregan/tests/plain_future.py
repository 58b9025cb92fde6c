"""A generator that is a simple formula, so that tests can compute its predictions in NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from futuregan.restore import Restored

PAST, FUTURE = 3, 2


def generator(past: Tensor, fade: float = 1.0) -> Tensor:
    """Return two frames: the last past frame, plus 1 or 2 times a change, plus 0.01.

    The change is the last minus the first past frame, times `fade`. Values may leave -1..1.
    """
    last, first = past[:, :, -1:], past[:, :, :1]
    times = past.new_tensor([1.0, 2.0]).view(-1, 1, 1)
    return last + (last - first) * fade * times + 0.01


def restored(size: int = 16, channels: int = 3, every: int = 1, fade: float = 0.25) -> Restored:
    return Restored(generator, fade, PAST, FUTURE, size, channels, every, 7)


def predicted(
    past: NDArray[np.float64], frames: int, fade: float = 0.25
) -> NDArray[np.float64]:
    """Return the `frames` frames after `past`, (n, C, frames, H, W), computed in a NumPy loop.

    Each pass of the loop predicts two frames, and clips their values to -1..1.
    """
    seen = [past[:, :, at] for at in range(PAST)]
    while len(seen) < PAST + frames:
        last, first = seen[-1], seen[-PAST]
        seen += [np.clip(last + (last - first) * fade * number + 0.01, -1, 1)
                 for number in (1, 2)]
    return np.stack(seen[PAST : PAST + frames], 2)
