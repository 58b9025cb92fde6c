"""Picture files: their properties, and their pixels by the rule that packer and apps share.

The rule: the picture is turned upright by EXIF and has 8 bits (the upper 8 bits of 16-bit grey).
Palettes become colours, the alpha channel is dropped, CMYK becomes RGB, and grey stays grey. A file
is *not plain* if only some decoders can read it, or if decoders return different pictures. Such a
file is encoded again, or refused with its name.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import PIL
from PIL import Image

from shards import jpegfile, pngfile
from shards.picturefacts import EXIF, BadImage, Facts, decoding, fault, orientation_of

JPEG, PNG = jpegfile.MAGIC, pngfile.MAGIC
OTHERS = ("BMP", "PPM", "TIFF", "WEBP")
"""Further formats that the packer reads; their pictures are encoded again before packing."""

MOST_PIXELS = 178_956_970  # Pillow's limit, because a small file may declare more
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}
_USED = 1 << 14
"""Smallest accepted maximum of the pixels of a 16-bit grey picture.

A picture with a lower maximum is refused, because its real bit depth is below 16.
"""


def facts(content: bytes) -> Facts:
    """Return the properties of a picture file from its headers, without decoding the pixels.

    Raises:
        BadImage: the file is not a picture, no decoder reads it, or it contains several pictures or
            more than `MOST_PIXELS` pixels.
    """
    if content.startswith(JPEG):
        found = jpegfile.facts(content)
    elif content.startswith(PNG):
        found = pngfile.facts(content)
    else:
        found = _other(content)
    if not 0 < found.width * found.height <= MOST_PIXELS:
        raise BadImage(f"has {found.width}x{found.height} pixels: 1 to {MOST_PIXELS:,} can be read")
    return found


def check(content: bytes) -> Facts:
    """Check all chunks, checksums and rows if the file is a PNG, and return the file's `facts`.

    Pillow ignores some faults in PNG files that make the decoders of a training fail.

    Raises:
        BadImage: the file is damaged, or `facts` refuses it.
    """
    found = facts(content)
    if found.kind == "png":
        pngfile.check(content)
    return found


def picture(content: bytes) -> Image.Image:
    """Return the upright picture of a file, in mode L or RGB.

    Raises:
        BadImage: the file cannot be decoded, or is damaged.
    """
    found = check(content)
    return upright(decoded(content), found.orientation)


def decoded(content: bytes, least: tuple[int, int] | None = None) -> Image.Image:
    """Return the stored pixels in mode L or RGB, before a rotation by EXIF.

    Args:
        content: a picture file.
        least: (width, height) in pixels. A JPEG may be decoded at a half, a quarter or an eighth of
            its size, as long as it is not smaller than `least`. By default, it has its full size.

    Raises:
        BadImage: the pixels cannot be decoded.
    """
    with opened(content) as image:
        if least is not None:
            image.draft(None, least)
        load(image)
        return _eight_bits(image)


def plain(content: bytes, save: Callable[[Image.Image], bytes] | None = None) -> bytes:
    """Return `content` or a replacement that every decoder reads in the same way.

    Args:
        content: a picture file.
        save: function that encodes the upright picture if a replacement is needed; by default, the
            picture becomes an uncompressed PNG.

    Raises:
        BadImage: the file cannot be decoded. If the file needs no replacement, its pixels are not
            decoded, and damage in them is not noticed; but 16-bit grey pictures are decoded to
            check their maximum.
    """
    found = facts(content)
    if found.common and found.orientation == 0:
        without_exif = jpegfile.without_exif if found.kind == "jpg" else pngfile.without_exif
        return without_exif(content)
    if not found.plain:
        whole = picture(content)
        return save(whole) if save else saved(whole, "PNG", compress_level=0)
    if found.deep:
        decoded(content)
    return content


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Return the picture rotated or mirrored as its EXIF orientation demands."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)


def saved(image: Image.Image, form: str, **options: object) -> bytes:
    """Return a picture file in Pillow's format `form`, encoded with the `options` of Pillow."""
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def in_channels(image: Image.Image, channels: int) -> Image.Image:
    """Return a picture of mode L or RGB as grey (1 channel) or RGB (3 channels)."""
    return image.convert("L" if channels == 1 else "RGB")


def opened(content: bytes) -> Image.Image:
    """Return a picture whose pixels are not loaded yet.

    The metadata are removed first, because Pillow fails on faulty metadata and limits their size.

    Raises:
        BadImage: the file is not a picture.
    """
    if content.startswith(JPEG):
        kept = jpegfile.without(content, lambda marker, _: marker not in (0xE0, 0xEE))
        return _opened(kept, ("JPEG",))
    if content.startswith(PNG):
        return _opened(pngfile.only(content, (b"IHDR", b"PLTE", b"IDAT", b"IEND")), ("PNG",))
    return _opened(content, OTHERS)


def load(image: Image.Image) -> None:
    """Decode the pixels of an opened picture.

    Raises:
        BadImage: the pixels cannot be decoded.
    """
    with decoding():
        image.load()


@decoding()
def _opened(content: bytes, formats: tuple[str, ...]) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=formats)
    except PIL.UnidentifiedImageError:
        raise BadImage(f"cannot be decoded as {' or '.join(formats)}") from None


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return the pixels in mode L or RGB; scale grey of 16 bits, which Pillow would clip."""
    if image.mode in ("L", "RGB"):
        return image
    if image.mode.startswith("I"):
        values = np.asarray(image)
        least, most = int(values.min()), int(values.max())
        if least < 0 or not _USED <= most < 1 << 16:
            raise BadImage(
                f"is a picture of 16 bits whose values end at {most}: it has another bit depth than"
                " its file; scale it to 8 or 16 bits"
            )
        return Image.fromarray((values >> 8).astype(np.uint8))
    if image.mode in ("F", "LAB"):
        raise BadImage(f"has pixels of the kind {image.mode}; save it with 8 bits, RGB or grey")
    return image.convert("RGB")


def _other(content: bytes) -> Facts:
    with (
        decoding(lambda _: fault(
            f"it is not a JPEG, PNG, {', '.join(OTHERS)} file (it begins with {content[:8]!r})"
        )),
        Image.open(io.BytesIO(content), formats=OTHERS) as image,
    ):
        pictures = getattr(image, "n_frames", 1)
        exif = image.info.get("exif", b"") if image.format == "WEBP" else b""
        width, height = image.size
    if pictures > 1:
        raise BadImage(f"has {pictures} pictures in it; one is needed")
    # Pillow itself applies the orientation tag of TIFF files.
    turn = orientation_of(exif.removeprefix(EXIF)) if exif else 1
    return Facts("", width, height, turn, common=False)
