"""A picture file: what is in it, and its pixels by the one rule that packer and apps share.

The rule: upright as EXIF says; 8 bits, of 16 bits of grey the upper 8; a palette's colours; without
its alpha channel; CMYK as RGB; grey stays grey. What only some decoders read, or read otherwise, is
*not plain*: it is encoded anew, or refused by name.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import PIL
from PIL import Image

from shards import jpegfile, pngfile
from shards.picturefacts import EXIF, BadImage, Facts, fault, orientation_of

JPEG, PNG = jpegfile.MAGIC, pngfile.MAGIC
OTHERS = ("BMP", "PPM", "TIFF", "WEBP")
"""What is read besides JPEG and PNG where somebody has such files; none of it is packed."""

MOST_PIXELS = 178_956_970  # Pillow's own limit: a few bytes can claim to be more
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}
_USED = 1 << 14
"""A grey picture of 16 bits has values from here on, or it has fewer bits than its file."""


def facts(content: bytes) -> Facts:
    """Return what `content` says of itself, without decoding it.

    Raises:
        BadImage: it is no picture, or one that no decoder reads, of several pictures, or of more
            pixels than `MOST_PIXELS`.
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
    """Return `facts`; of a PNG file look at all chunks, checksums and rows, too.

    Pillow reads over faults there at which the decoders of a training stop.

    Raises:
        BadImage: it is damaged, or as by `facts`.
    """
    found = facts(content)
    if found.kind == "png":
        pngfile.check(content)
    return found


def picture(content: bytes) -> Image.Image:
    """Return the upright picture, mode L or RGB.

    Raises:
        BadImage: it cannot be decoded, or is damaged.
    """
    found = check(content)
    return upright(decoded(content), found.orientation)


def decoded(content: bytes, least: tuple[int, int] | None = None) -> Image.Image:
    """Return the stored pixels, mode L or RGB; a JPEG may be halved down to `least` on the way.

    Raises:
        BadImage: they cannot be decoded.
    """
    with opened(content) as image:
        if least is not None:
            image.draft(None, least)
        load(image)
        return _eight_bits(image)


def plain(content: bytes, save: Callable[[Image.Image], bytes] | None = None) -> bytes:
    """Return a picture file that every decoder reads alike: `content` itself, or what follows it.

    Args:
        content: a picture file.
        save: encodes the upright picture where it has to be; without it, as PNG in haste.

    Raises:
        BadImage: it cannot be decoded. Of plain files nobody looks at the pixels here, unless they
            have 16 bits, of which fewer may be used.
    """
    found = facts(content)
    if found.common and found.orientation == 0:
        without_exif = jpegfile.without_exif if found.kind == "jpg" else pngfile.without_exif
        return without_exif(content)
    if not found.plain:
        return (save or _hasty)(picture(content))
    if found.deep:
        decoded(content)
    return content


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """Return the picture turned as EXIF says."""
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(turn)


def in_channels(image: Image.Image, channels: int) -> Image.Image:
    """Return a picture of mode L or RGB in grey (1 channel) or in RGB (3)."""
    return image.convert("L" if channels == 1 else "RGB")


def opened(content: bytes) -> Image.Image:
    """Return the picture with its pixels still to be loaded.

    Pillow gets no metadata: it fails at odd ones, and limits how much of them there may be.

    Raises:
        BadImage: it is no picture.
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
        BadImage: they cannot be.
    """
    try:
        image.load()
    except MemoryError:
        raise
    except Exception as error:  # of damaged files decoders raise nearly anything
        raise fault(error) from error


def _opened(content: bytes, formats: tuple[str, ...]) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=formats)
    except PIL.UnidentifiedImageError:
        raise BadImage(f"cannot be decoded as {' or '.join(formats)}") from None
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise fault(error) from error


def _eight_bits(image: Image.Image) -> Image.Image:
    """Return the pixels in mode L or RGB, and grey of 16 bits scaled, which Pillow would clip."""
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


def _hasty(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG", compress_level=0)
    return out.getvalue()


def _other(content: bytes) -> Facts:
    try:
        with Image.open(io.BytesIO(content), formats=OTHERS) as image:
            pictures = getattr(image, "n_frames", 1)
            exif = image.info.get("exif", b"") if image.format == "WEBP" else b""
            width, height = image.size
    except MemoryError:
        raise
    except Exception:  # as above
        raise fault(
            f"it is no JPEG, PNG, {', '.join(OTHERS)} file (it begins with {content[:8]!r})"
        ) from None
    if pictures > 1:
        raise BadImage(f"has {pictures} pictures in it; one is needed")
    # Pillow turns TIFF by itself, as its tag of the same number says.
    turn = orientation_of(exif.removeprefix(EXIF)) if exif else 1
    return Facts("", width, height, turn, common=False)
