"""Check the bytes of one image file, and copy, scale or re-encode them."""

from __future__ import annotations

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
"""Pillow's bicubic filter, which averages over all source pixels when it reduces an image."""

Resize = int | tuple[int, int]
"""A size in pixels: the maximum of the shorter side, or the exact width and height."""

QUALITY = 95  # quality of a JPEG that is re-encoded without scaling

_BEGINS = {"jpg": picturefile.JPEG, "png": picturefile.PNG}
_CHECKED_AT = 8  # a JPEG decoded at 1/8 of its size reveals the same faults, in less time


def checked(content: bytes) -> bytes:
    """Return `content` as an image file that every app decodes to the same pixels.

    Most files are returned unchanged, byte for byte. A file with an EXIF orientation, and a JPEG
    that only some apps decode (CMYK or arithmetic coding), are re-encoded: JPEG with `QUALITY`, PNG
    without loss. Contradictory EXIF data are removed.

    Raises:
        BadImage: the content cannot be decoded, or is a DICOM file, which needs `scaled`.
    """
    with _quietly():
        if dicom.is_dicom(content):
            _dicom(content)
            raise BadImage("is a DICOM file by its content, which can be packed with --resize only")
        found = _check(content)
        _decode_all(content, found)
        return picturefile.plain(content, lambda image: (
            encoded(image, QUALITY) if found.kind == "jpg" else picturefile.saved(image, "PNG")
        ))


def verified(content: bytes) -> bytes:
    """Return the packed image file `content` if all apps decode it to the same pixels.

    Raises:
        BadImage: apps would decode the image to different pixels, or not at all.
    """
    if checked(content) != content:
        found = picturefile.facts(content)
        odd = (f"EXIF gives it the orientation {found.orientation}" if found.orientation > 1 else
               "EXIF gives it several orientations" if found.common else
               "it is a JPEG file with CMYK or arithmetic coding")
        raise BadImage(f"is not decoded to the same pixels by all apps: {odd}; pack it again")
    return content


def size(content: bytes) -> tuple[int, int]:
    """Return the width and height in pixels of the image after rotation by its EXIF orientation.

    They are read from the header of the file.

    Raises:
        BadImage: the header contains no size.
    """
    with _quietly():
        if dicom.is_dicom(content):
            return _dicom(content).size
        _refuse_unknown(content)
        return picturefile.facts(content).size


def target(size: tuple[int, int], to: Resize) -> tuple[int, int]:
    """Return the width and height in pixels to which an image of the size `size` is scaled."""
    if not isinstance(to, int):
        return to
    factor = min(1.0, to / min(size))
    return max(1, round(size[0] * factor)), max(1, round(size[1] * factor))


def encoded(picture: Image.Image, quality: int) -> bytes:
    """Return `picture` as JPEG (`quality` 1 to 95, 4:2:0 subsampling), without EXIF."""
    return picturefile.saved(picture, "JPEG", quality=quality, subsampling="4:2:0")


def scaled(content: bytes, to: Resize, quality: int) -> bytes:
    """Return the image as a JPEG file, scaled to the size `to`.

    A plain grey or RGB JPEG of this size is returned unchanged. Any other image is rotated by its
    EXIF orientation, converted to RGB unless it is grey, scaled with `FILTER`, and encoded with
    `quality` (1 to 95, as in Pillow) and 4:2:0 subsampling. The decoder first halves a large JPEG,
    as long as its sides remain at least twice the final sides.

    Raises:
        BadImage: the content cannot be decoded.
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
        stored = upright[::-1] if found.sideways else upright  # scaled first, then rotated
        image = picturefile.decoded(content, (2 * stored[0], 2 * stored[1]))
        return encoded(picturefile.upright(_sized(image, stored), found.orientation), quality)


def encoding(content: bytes) -> str:
    """Return `jpg` or `png` by the first bytes of `content`, or "" for any other format."""
    return next((kind for kind, begin in _BEGINS.items() if content.startswith(begin)), "")


def _sized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    return image if image.size == size else image.resize(size, FILTER)


def _check(content: bytes) -> Facts:
    _refuse_unknown(content)
    return picturefile.check(content)


def _refuse_unknown(content: bytes) -> None:
    if not encoding(content):
        raise BadImage(f"is not a JPEG, PNG or DICOM file (it begins with {content[:8]!r})")


def _dicom(content: bytes) -> Image.Image:
    try:
        return dicom.picture(content)
    except ValueError as error:
        raise BadImage(f"cannot be decoded: {error}") from error


def _decode_all(content: bytes, found: Facts) -> None:
    """Raise BadImage if the image cannot be decoded to its end."""
    least = found.width // _CHECKED_AT or 1, found.height // _CHECKED_AT or 1
    picturefile.decoded(content, least)


@contextmanager
def _quietly() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about large images or unusual metadata
        yield
