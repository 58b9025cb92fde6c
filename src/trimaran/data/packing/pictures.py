"""The bytes of one image: checked, passed on as they are, or scaled and encoded anew."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import PIL
from PIL import ExifTags, Image

from trimaran.data.packing import dicom

ENCODER = f"Pillow {PIL.__version__}"
FILTER = Image.Resampling.BICUBIC
"""Pillow's bicubic filter, which averages over all source pixels when it scales down."""

Resize = int | tuple[int, int]
"""Pixels that the shorter side has at most, or width and height, whatever the shape was."""

_FORMATS = ("JPEG", "PNG")
_BEGINS = {"jpg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}
"""What sets an image upright, by the orientation that EXIF gives."""

_QUARTER_TURNS = (5, 6, 7, 8)

_USED = 1 << 14
"""A grey picture of 16 bits has values from here on, or it has fewer bits than its file."""

_CHECKED_AT = 8  # JPEG: reading all of it and transforming one pixel in 64 finds the same faults


class BadImage(Exception):  # noqa: N818 - the fault of an image, named where it is collected
    """An image cannot be decoded; says why."""


def checked(content: bytes) -> bytes:
    """Return `content`, an image file that can be decoded to its end.

    Raises:
        BadImage: it cannot.
    """
    with _opened(content) as image:
        _skim(image)
        _check_depth(image)
    return content


def size(content: bytes) -> tuple[int, int]:
    """Return width and height, as the image file says at its begin.

    Raises:
        BadImage: it says nothing of the kind.
    """
    with _opened(content) as image:
        return image.size


def target(size: tuple[int, int], to: Resize) -> tuple[int, int]:
    """Return width and height to which an image of `size` is scaled."""
    if not isinstance(to, int):
        return to
    factor = min(1.0, to / min(size))
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def encoded(picture: Image.Image, quality: int) -> bytes:
    """Return `picture` as JPEG (`quality` 1 to 95, 4:2:0 subsampling), without EXIF."""
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality, subsampling="4:2:0")
    return out.getvalue()


def scaled(content: bytes, to: Resize, quality: int) -> bytes:
    """Return a JPEG of the size that `to` says.

    A grey or RGB JPEG that has it comes back unchanged. Anything else is turned
    as its EXIF says, converted to RGB unless it is grey, scaled with `FILTER`, and encoded
    with `quality` (Pillow's 1 to 95) and 4:2:0 subsampling. A JPEG of at least twice
    the size is first halved by its decoder, as often as that leaves at least twice the result.

    Raises:
        BadImage: it cannot be decoded.
    """
    with _opened(content) as image:
        width, height = target(image.size, to)
        if not isinstance(to, int) and _orientation(image) in _QUARTER_TURNS:
            width, height = height, width  # it is turned after it was scaled
        small = (width, height) == image.size
        if small and image.format == "JPEG" and image.mode in ("L", "RGB"):
            _skim(image)
            return content
        image.draft(None, (2 * width, 2 * height))
        _check_depth(image)
        picture = _eight_bits(image)
        if not small:
            picture = picture.resize((width, height), FILTER)
        return encoded(_upright(picture, image), quality)


def encoding(content: bytes) -> str:
    """Return `jpg` or `png` by how `content` begins, or "" where it is neither."""
    return next((kind for kind, begin in _BEGINS.items() if content.startswith(begin)), "")


@contextmanager
def _opened(content: bytes) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd metadata, which nobody needs
            with _opened_at_all(content) as image:
                yield image
    except PIL.UnidentifiedImageError:
        raise BadImage(f"is no JPEG, PNG or DICOM file (it begins with {content[:8]!r})") from None
    # What Pillow's decoders raise for damaged files, by experience.
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, Image.DecompressionBombError,
            ) as error:
        raise BadImage(f"cannot be decoded: {error}") from error


def _opened_at_all(content: bytes) -> Image.Image:
    if dicom.is_dicom(content):
        return dicom.picture(content)
    try:
        return Image.open(io.BytesIO(content), formats=_FORMATS)
    except PIL.UnidentifiedImageError:
        # Or a JPEG with odd EXIF, where Pillow looks for the dots per inch. Unnamed, it is skipped.
        unnamed = content.replace(b"Exif\0\0", bytes(6), 1)
        return Image.open(io.BytesIO(unnamed), formats=_FORMATS)


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return `image` in mode L or RGB."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode.startswith("I"):  # grey of 16 bits: convert() would cut off at 255, not scale
        return image.point(lambda value: value * (1 / 256)).convert("L")
    return image.convert("RGB")


def _check_depth(image: Image.Image) -> None:
    """Refuse a grey picture of, say, 12 bits in a file of 16, which would be all but black."""
    if image.mode.startswith("I"):
        most = int(np.asarray(image).max())
        if not _USED <= most < 1 << 16:
            raise BadImage(
                f"is a picture of 16 bits whose values end at {most}: it has another bit depth than"
                " its file; scale it to 8 or 16 bits"
            )


def _upright(picture: Image.Image, source: Image.Image) -> Image.Image:
    """Return `picture`, made of `source`, turned as the EXIF of `source` says.

    Not by Pillow's `exif_transpose`: it writes all of the EXIF anew, and fails at any odd tag.
    """
    turn = _TURNS.get(_orientation(source))
    return picture if turn is None else picture.transpose(turn)


def _orientation(image: Image.Image) -> int:
    """Return what EXIF says of it; 1 is upright."""
    try:
        found = image.getexif().get(ExifTags.Base.Orientation)
    except Exception:  # of damaged EXIF, nearly any; the pixels are none the worse for it
        return 1
    return found if isinstance(found, int) else 1


def _skim(image: Image.Image) -> None:
    image.draft(None, (image.width // _CHECKED_AT or 1, image.height // _CHECKED_AT or 1))
    image.load()
