"""The display matrix of a video: how a player turns and mirrors its frames.

Phones write videos as the sensor lies, with a matrix in the file that sets them upright. The tool
packs videos and an app predicts from them: a network must see both alike.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    import av

_ONE, _ONE_AT_LAST = 1 << 16, 1 << 30
"""1.0 in the first two columns, and in the last one: FFmpeg's libavutil/display.h."""

_NEAR = 1 / 1024
"""Sines of right angles that writers compute are not all just 0 or 1."""

_TURNS = {
    (1, 0, 0, 1): None,
    (-1, 0, 0, 1): Image.Transpose.FLIP_LEFT_RIGHT,
    (-1, 0, 0, -1): Image.Transpose.ROTATE_180,
    (1, 0, 0, -1): Image.Transpose.FLIP_TOP_BOTTOM,
    (0, 1, 1, 0): Image.Transpose.TRANSPOSE,
    (0, 1, -1, 0): Image.Transpose.ROTATE_270,
    (0, -1, -1, 0): Image.Transpose.TRANSVERSE,
    (0, -1, 1, 0): Image.Transpose.ROTATE_90,
}
"""By a, b, c, d: the stored point (p, q) is shown at (a p + c q, b p + d q); q points down."""


def upright(image: Image.Image, frame: av.VideoFrame) -> Image.Image:
    """Return `image`, made of `frame`, as a player shows it.

    Raises:
        ValueError: the matrix does more than to turn by right angles and to mirror.
    """
    from av.sidedata.sidedata import Type

    found: Any = frame.side_data  # of which PyAV's annotations know the motion vectors only
    if Type.DISPLAYMATRIX not in found:
        return image
    turn = turn_of(struct.unpack("=9i", bytes(found[Type.DISPLAYMATRIX])))
    return image if turn is None else image.transpose(turn)


def turn_of(matrix: tuple[int, ...]) -> Image.Transpose | None:
    """Return what sets a frame upright by `matrix`: a, b, u, c, d, v, x, y, w in fixed point.

    x and y say where on the screen it is shown, which does not matter here. A matrix whose a, b, c,
    d are singular, such as all zeros, shows nothing: FFmpeg's players ignore it, and so does this.

    Raises:
        ValueError: see `upright`.
    """
    a, b, u, c, d, v, _, _, w = matrix
    if a * d == b * c:
        return None
    found = [part / _ONE for part in (a, b, c, d)]
    key = tuple(map(round, found))
    last = [part / _ONE_AT_LAST for part in (u, v, w)]
    off = [abs(x - y) for x, y in zip((*found, *last), (*key, 0, 0, 1), strict=True)]
    if key not in _TURNS or max(off) > _NEAR:
        raise ValueError(
            f"has a display matrix that scales, skews or turns by no right angle: {matrix}"
        )
    return _TURNS[key]
