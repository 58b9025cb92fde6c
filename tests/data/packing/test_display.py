"""Display matrices: every orientation that a video can have, and invalid matrices."""

from __future__ import annotations

import struct
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image

from refusals import refused
from trimaran.data.packing import image_folders, packer, videos
from trimaran.data.packing.pictures import BadImage
from trimaran.data.packing.plan import Options
from trimaran.data.packing.videos import Clip
from trimaran.reporting import Silent

ONE, LAST = 1 << 16, 1 << 30
IDENTITY = (ONE, 0, 0, 0, ONE, 0, 0, 0, LAST)
COLOURS = {"r": (255, 0, 0), "g": (0, 255, 0), "b": (0, 0, 255), "w": (255, 255, 255)}


def affine(a: float, b: float, c: float, d: float, x: int = 0, y: int = 0) -> tuple[int, ...]:
    """Return an affine matrix in the fixed-point format of a video file's header."""
    return (round(a * ONE), round(b * ONE), 0, round(c * ONE), round(d * ONE), 0, x, y, LAST)


ORIENTATIONS = {  # the colours of the corners as they are shown: above, then below
    "as it is": (affine(1, 0, 0, 1), "rgbw"),
    "mirrored": (affine(-1, 0, 0, 1), "grwb"),
    "half a turn": (affine(-1, 0, 0, -1), "wbgr"),
    "upside down, mirrored": (affine(1, 0, 0, -1), "bwrg"),
    "along its diagonal": (affine(0, 1, 1, 0), "rbgw"),
    "turned right": (affine(0, 1, -1, 0), "brwg"),
    "along the other diagonal": (affine(0, -1, -1, 0), "wgbr"),
    "turned left": (affine(0, -1, 1, 0), "gwrb"),
    "moved to its place, as phones write it": (affine(0, 1, -1, 0, 48 * ONE, 0), "brwg"),
    "an inexact sine": (affine(3e-5, 0.99997, -1, 0), "brwg"),
    "zeros": ((0,) * 9, "rgbw"),
    "zeros but for the last": ((*(0,) * 8, LAST), "rgbw"),
    "one column of zeros": (affine(0, 0, 0, 1), "rgbw"),
    "singular": (affine(1, 1, 1, 1), "rgbw"),
    "the least numbers, all equal": ((-(2**31),) * 8 + (LAST,), "rgbw"),
}
NONE = {
    "skew": affine(1, 0, 0.5, 1),
    "twice as large": affine(2, 0, 0, 2),
    "half as large, turned": affine(0, 0.5, -0.5, 0),
    "twice as wide": affine(2, 0, 0, 1),
    "hardly higher": affine(1, 0, 0, 1.01),
    "45 degrees": affine(0.70711, 0.70711, -0.70711, 0.70711),
    "2 degrees": affine(0.99939, 0.0349, -0.0349, 0.99939),
    "all but singular": affine(1, 0, 0, 0.001),
    "perspective": (ONE, 0, LAST // 4, 0, ONE, 0, 0, 0, LAST),
    "divided by 2": (*IDENTITY[:8], LAST // 2),
    "divided by 0": (*IDENTITY[:8], 0),
    "numbers in another fixed point": tuple(one >> 8 for one in IDENTITY),
}


def film(path: Path, matrix: tuple[int, ...]) -> Path:
    """Write a video of two frames with four coloured quarters, and `matrix` in its header.

    The display matrix in a header turns or flips the video when it is shown.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.repeat(np.repeat(
        np.array([COLOURS[one] for one in "rgbw"], np.uint8).reshape(2, 2, 3), 24, 0), 32, 1)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(2):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels)))
        container.mux(stream.encode())
    content = path.read_bytes()
    old = struct.pack(">9i", *IDENTITY)
    at = content.index(old, content.index(b"tkhd"))
    path.write_bytes(content[:at] + struct.pack(">9i", *matrix) + content[at + len(old):])
    return path


def corners(image: Image.Image) -> str:
    """Return the colours in the centres of the four quarters of an image."""
    places = [(x, y) for y in (1, 3) for x in (1, 3)]
    shown = [np.array(image.getpixel((image.width * x // 4, image.height * y // 4)))
             for x, y in places]
    return "".join(
        next(one for one in COLOURS if abs(pixel - COLOURS[one]).max() < 60) for pixel in shown
    )


@pytest.mark.parametrize(("matrix", "seen"), ORIENTATIONS.values(), ids=ORIENTATIONS)
@pytest.mark.parametrize("ending", ["mp4", "mov"])
def test_frames_are_packed_as_a_player_shows_them(
    ending: str, matrix: tuple[int, ...], seen: str, tmp_path: Path
) -> None:
    images = list(videos.frames(film(tmp_path / f"a.{ending}", matrix), Clip()))
    assert [corners(image) for image in images] == [seen] * 2
    sideways = seen in ("rbgw", "brwg", "wgbr", "gwrb")
    assert {image.size for image in images} == {(48, 64) if sideways else (64, 48)}


@pytest.mark.parametrize(
    ("matrix", "seen"), list(ORIENTATIONS.values())[:8], ids=list(ORIENTATIONS)[:8]
)
def test_matroska_says_it_by_angles(matrix: tuple[int, ...], seen: str, tmp_path: Path) -> None:
    path = into(film(tmp_path / "a.mp4", matrix), tmp_path / "a.mkv")
    assert {corners(image) for image in videos.frames(path, Clip())} == {seen}


def test_a_part_is_cut_out_of_what_is_shown(tmp_path: Path) -> None:
    path = film(tmp_path / "a.mp4", ORIENTATIONS["turned right"][0])
    (image, *_) = videos.frames(path, Clip(0, 1, (24, 0, 48, 64)))
    assert (image.size, corners(image)) == ((24, 64), "rrgg")


def into(path: Path, other: Path) -> Path:
    """Copy a video without decoding, and with its display matrix, into another container format."""
    with av.open(str(path)) as source, av.open(str(other), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.size:
                packet.stream = stream
                target.mux(packet)
    return other


@pytest.mark.parametrize("matrix", NONE.values(), ids=NONE)
def test_a_matrix_that_is_no_orientation_is_refused_by_name(
    matrix: tuple[int, ...], tmp_path: Path
) -> None:
    path = film(tmp_path / "films/train/a.mp4", matrix)
    with pytest.raises(BadImage, match="frame 0 has a display matrix"):
        list(videos.frames(path, Clip()))
    found = image_folders.listing_of(
        tmp_path / "films", tmp_path / "out", labels=None, in_sequences=True, untrained=False,
        workers=1, reporter=Silent(),
    )
    with refused("image-undecodable", "train/a.mp4 frame 0"):
        packer.pack(found, tmp_path / "out", Options("films", "webdataset"), workers=1,
                    skip_bad=False, reporter=Silent())
