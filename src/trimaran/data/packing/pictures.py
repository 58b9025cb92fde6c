"""The bytes of one image: checked, passed on as they are, or scaled and encoded anew."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import PIL
from PIL import Image

from shards import dicom, picturefile
from shards.picturefacts import BadImage as BadImage
from shards.picturefacts import Facts

ENCODER = f"Pillow {PIL.__version__}"
FILTER = Image.Resampling.BICUBIC
"""Pillow's bicubic filter, which averages over all source pixels when it scales down."""

Resize = int | tuple[int, int]
"""Pixels that the shorter side has at most, or width and height, whatever the shape was."""

QUALITY = 95  # of a JPEG that has to be encoded anew, and is not scaled

_BEGINS = {"jpg": picturefile.JPEG, "png": picturefile.PNG}
_CHECKED_AT = 8  # JPEG: reading all of it and transforming one pixel in 64 finds the same faults


def checked(content: bytes) -> bytes:
    """Return an image file of the same size that every app decodes to the same pixels.

    It is `content` itself, byte for byte, unless EXIF says that it is to be turned, or only some
    apps decode it (JPEG with CMYK or arithmetic coding): such a JPEG is encoded anew with
    `QUALITY`, such a PNG without loss. EXIF that says several things is taken out.

    Raises:
        BadImage: it cannot be decoded, or is a DICOM file, which is packed as something else.
    """
    with _quietly():
        if dicom.is_dicom(content):
            _dicom(content)
            raise BadImage("is a DICOM file by its content, which is packed with --resize only")
        found = _check(content)
        _decode_all(content, found)
        return picturefile.plain(
            content, lambda image: encoded(image, QUALITY) if found.kind == "jpg" else png(image)
        )


def verified(content: bytes) -> bytes:
    """Return `content`, a packed image file, if it is what `checked` returns of it.

    Raises:
        BadImage: it is not: the apps would not decode it alike, or not at all.
    """
    if checked(content) != content:
        found = picturefile.facts(content)
        odd = (f"EXIF gives it the orientation {found.orientation}" if found.orientation > 1 else
               "EXIF gives it several orientations" if found.common else
               "it is a JPEG file with CMYK or arithmetic coding")
        raise BadImage(f"is not decoded alike by all apps: {odd}; pack it again")
    return content


def size(content: bytes) -> tuple[int, int]:
    """Return width and height of the upright image, as the image file says at its begin.

    Raises:
        BadImage: it says nothing of the kind.
    """
    with _quietly():
        if dicom.is_dicom(content):
            return _dicom(content).size
        _refuse_unknown(content)
        return picturefile.facts(content).size


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


def png(picture: Image.Image) -> bytes:
    """Return `picture` as PNG, with the compression that is the default of its libraries."""
    out = io.BytesIO()
    picture.save(out, "PNG")
    return out.getvalue()


def scaled(content: bytes, to: Resize, quality: int) -> bytes:
    """Return a JPEG of the size that `to` says.

    A plain grey or RGB JPEG that has it comes back unchanged. Anything else is turned
    as its EXIF says, converted to RGB unless it is grey, scaled with `FILTER`, and encoded
    with `quality` (Pillow's 1 to 95) and 4:2:0 subsampling. A JPEG of at least twice
    the size is first halved by its decoder, as often as that leaves at least twice the result.

    Raises:
        BadImage: it cannot be decoded.
    """
    with _quietly():
        if dicom.is_dicom(content):
            image = _dicom(content)
            return encoded(_sized(image, target(image.size, to)), quality)
        found = _check(content)
        upright = target(found.size, to)
        is_right = found.kind == "jpg" and found.common and found.orientation <= 1
        if is_right and found.size == upright:
            _decode_all(content, found)
            return picturefile.plain(content)
        stored = upright[::-1] if found.sideways else upright  # it is turned after it was scaled
        image = picturefile.decoded(content, (2 * stored[0], 2 * stored[1]))
        return encoded(picturefile.upright(_sized(image, stored), found.orientation), quality)


def encoding(content: bytes) -> str:
    """Return `jpg` or `png` by how `content` begins, or "" where it is neither."""
    return next((kind for kind, begin in _BEGINS.items() if content.startswith(begin)), "")


def _sized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, FILTER)


def _check(content: bytes) -> Facts:
    _refuse_unknown(content)
    return picturefile.check(content)


def _refuse_unknown(content: bytes) -> None:
    if not encoding(content):
        raise BadImage(f"is no JPEG, PNG or DICOM file (it begins with {content[:8]!r})")


def _dicom(content: bytes) -> Image.Image:
    try:
        return dicom.picture(content)
    except ValueError as error:
        raise BadImage(f"cannot be decoded: {error}") from error


def _decode_all(content: bytes, found: Facts) -> None:
    """Find out whether an image can be decoded to its end."""
    least = found.width // _CHECKED_AT or 1, found.height // _CHECKED_AT or 1
    picturefile.decoded(content, least)


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of many pixels, or odd metadata, which nobody needs
        yield
