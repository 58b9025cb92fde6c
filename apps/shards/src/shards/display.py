"""The display matrix of a video, by which a player rotates and mirrors the frames.

Phones store frames as the sensor records them, and add a matrix that turns them upright. The tool
packs videos, and an app predicts from videos: both must pass the same frames to a network.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from PIL import Image

if TYPE_CHECKING:
    import av

_ONE, _ONE_AT_LAST = 1 << 16, 1 << 30
"""The fixed-point 1.0 in the first two columns of the matrix, and in its last column.

Source: libavutil/display.h of FFmpeg.
"""

_NEAR = 1 / 1024
"""Tolerance for the entries of a display matrix, after conversion from fixed point.

The entries are sines and cosines of right angles. Some programs that write videos compute
the sines inexactly.
"""

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
"""Matrix elements (a, b, c, d) -> transposition.

The stored point (p, q), with q downwards, is shown at (a p + c q, b p + d q).
"""


def upright(image: Image.Image, frame: av.VideoFrame) -> Image.Image:
    """Return `image` rotated and mirrored as a player shows it, by the display matrix of `frame`.

    `image` was made from `frame`, and is oriented as the frame is stored.

    Raises:
        ValueError: the matrix does more than rotate by right angles and mirror.
    """
    from av.sidedata.sidedata import Type

    found: Any = frame.side_data  # PyAV annotates only the motion vectors
    if Type.DISPLAYMATRIX not in found:
        return image
    turn = turn_of(struct.unpack("=9i", bytes(found[Type.DISPLAYMATRIX])))
    return image if turn is None else image.transpose(turn)


def turn_of(matrix: tuple[int, ...]) -> Image.Transpose | None:
    """Return the transposition that a display matrix describes, or None if the frame is unchanged.

    A matrix with singular a, b, c, d, such as all zeros, is ignored, as in FFmpeg's players.

    Args:
        matrix: a, b, u, c, d, v, x, y, w in fixed point. The position on the screen, x and y, is
            ignored.

    Raises:
        ValueError: the matrix does more than rotate by right angles and mirror.
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
