"""A picture file: what is in it, and its pixels by the one rule that packer and apps share.

The rule: upright as EXIF says; 8 bits, of 16 bits of grey the upper 8; a palette's colours; without
its alpha channel; CMYK as RGB; grey stays grey. What only some decoders read, or read otherwise, is
*not plain*: it is encoded anew, or refused by name.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import PIL
from PIL import Image

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
OTHERS = ("BMP", "PPM", "TIFF", "WEBP")
"""What is read besides JPEG and PNG where somebody has such files; none of it is packed."""

MOST_PIXELS = 178_956_970  # Pillow's own limit: a few bytes can claim to be more
_EXIF = b"Exif\0\0"
_ORIENTATION = 0x0112  # EXIF 2.32, table 4
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_90,
}
_USED = 1 << 14
"""A grey picture of 16 bits has values from here on, or it has fewer bits than its file."""

_HUFFMAN, _ARITHMETIC = (0xC0, 0xC1, 0xC2), (0xC9, 0xCA)  # JPEG, ITU-T T.81, table B.1
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by PNG's colour type
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
          (0, 1, 1, 2))
"""PNG's seven passes: the first column and row of each, and its steps."""


class BadImage(Exception):  # noqa: N818 - the fault of an image, named where it is collected
    """An image cannot be decoded; says why."""


def _fault(text: object) -> BadImage:
    return BadImage(f"cannot be decoded: {text}")


@dataclass(frozen=True)
class Facts:
    """What a picture file says at its begin.

    Attributes:
        kind: `jpg`, `png`, or "" for one of `OTHERS`.
        width: of the stored pixels, which may have to be turned.
        height: of them.
        orientation: 1 to 8, as EXIF says; 0 where it says several or says it several times, which
            counts as upright, and which decoders do not read alike.
        common: whether every decoder reads the stored pixels.
        deep: whether they are grey of 16 bits.
    """

    kind: str
    width: int
    height: int
    orientation: int = 1
    common: bool = True
    deep: bool = False

    @property
    def plain(self) -> bool:
        """Whether every decoder sees the same picture."""
        return self.common and self.orientation == 1

    @property
    def sideways(self) -> bool:
        """Whether width and height of the upright picture are the other way round."""
        return self.orientation >= 5

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the upright picture."""
        return (self.height, self.width) if self.sideways else (self.width, self.height)


def facts(content: bytes) -> Facts:
    """Return what `content` says of itself, without decoding it.

    Raises:
        BadImage: it is no picture, or one that no decoder reads, of several pictures, or of more
            pixels than `MOST_PIXELS`.
    """
    if content.startswith(JPEG):
        found = _jpeg(content)
    elif content.startswith(PNG):
        found = _png(content)
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
        _check_png(content)
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
        return _without_exif(content)
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
        return _opened(_without(content, lambda marker, _: marker not in (0xE0, 0xEE)), ("JPEG",))
    if content.startswith(PNG):
        wanted = (b"IHDR", b"PLTE", b"IDAT", b"IEND")
        parts = [content[at:end] for name, at, end in _chunks(content) if name in wanted]
        return _opened(PNG + b"".join(parts), ("PNG",))
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
        raise _fault(error) from error


def _opened(content: bytes, formats: tuple[str, ...]) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content), formats=formats)
    except PIL.UnidentifiedImageError:
        raise BadImage(f"cannot be decoded as {' or '.join(formats)}") from None
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise _fault(error) from error


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


def _orientation(exif: bytes) -> int:
    """Return what EXIF (a TIFF header and what follows) says of the orientation; 0: several.

    What cannot be read is none, and none is upright: so do the decoders, too.
    """
    order = {b"II": "<", b"MM": ">"}.get(exif[:2], "<")
    try:
        _, at = struct.unpack_from(f"{order}HI", exif, 2)
        (count,) = struct.unpack_from(f"{order}H", exif, at)
        for entry in range(at + 2, at + 2 + 12 * count, 12):
            tag, form, values = struct.unpack_from(f"{order}HHI", exif, entry)
            if tag == _ORIENTATION:
                if form not in (3, 4) or values != 1:  # not one number of 16 or 32 bits
                    return 0 if form in (3, 4) else 1
                found = struct.unpack_from(order + "HI"[form - 3], exif, entry + 8)[0]
                return int(found) if found in range(1, 9) else 1
    except struct.error:
        return 1
    return 1


def _jpeg(content: bytes) -> Facts:
    frame: tuple[int, bytes] | None = None
    tags = []
    for marker, start, end in _segments(content):
        body = content[start + 4 : end]
        if marker == 0xE1 and body.startswith(_EXIF):
            tags.append(_orientation(body[len(_EXIF):]))
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            frame = marker, body
    if frame is None or len(frame[1]) < 6:
        raise _fault("a JPEG file without a picture, or damaged")
    marker, body = frame
    depth, height, width, channels = struct.unpack_from(">BHHB", body)
    if marker not in (*_HUFFMAN, *_ARITHMETIC):
        raise _fault(f"a JPEG file of the kind SOF{marker - 0xC0}; save it anew")
    if depth != 8 or channels not in (1, 3, 4):
        raise _fault(f"a JPEG file of {depth} bits and {channels} channels;"
                       " save it with 8 bits, RGB or grey")
    # Of two, decoders take the first, the last or none, and one of them crashes.
    orientation = 0 if len(tags) > 1 and tags[0] == 1 else tags[0] if tags else 1
    return Facts("jpg", width, height, orientation,
                 common=marker in _HUFFMAN and channels != 4)


def _segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, begin and end of each segment of a JPEG file up to its pixels."""
    at = 2
    while True:
        at = content.find(b"\xff", at)  # decoders skip what is between segments
        while at >= 0 and content[at + 1 : at + 2] == b"\xff":
            at += 1
        if at < 0 or at + 4 > len(content):
            raise _fault("a JPEG file that is truncated before its pixels")
        marker = content[at + 1]
        if marker in (0x00, 0x01, 0xD8) or 0xD0 <= marker <= 0xD7:  # no length follows
            at += 2
            continue
        end = at + 2 + int.from_bytes(content[at + 2 : at + 4], "big")
        if marker == 0xD9 or end < at + 4 or end > len(content):
            raise _fault("a JPEG file that is truncated before its pixels")
        yield marker, at, end
        if marker == 0xDA:
            return
        at = end


def _without(content: bytes, unwanted: Callable[[int, bytes], bool]) -> bytes:
    """Return a JPEG file without its application segments (marker, body) that are `unwanted`."""
    parts, at = [], 0
    for marker, start, end in _segments(content):
        if 0xE0 <= marker <= 0xEF and unwanted(marker, content[start + 4 : end]):
            parts.append(content[at:start])
            at = end
    return b"".join([*parts, content[at:]])


def _without_exif(content: bytes) -> bytes:
    if content.startswith(JPEG):
        return _without(content, lambda marker, body: marker == 0xE1 and body.startswith(_EXIF))
    kept = [content[at:end] for name, at, end in _chunks(content) if name != b"eXIf"]
    return PNG + b"".join(kept)


def _chunks(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, begin and end of each chunk of a PNG file."""
    at, name = len(PNG), b""
    while name != b"IEND":
        if at + 12 > len(content):
            raise _fault("a truncated PNG file, whose last chunk IEND is missing")
        length, name = struct.unpack_from(">I4s", content, at)
        end = at + 12 + length
        if end > len(content):
            raise _fault(f"a PNG file that is truncated in {_chunk(name, at)}")
        yield name, at, end
        at = end


def _chunk(name: bytes, at: int) -> str:
    return f"the chunk {name.decode('ascii', 'backslashreplace')!r} at byte {at:,}"


def _png(content: bytes) -> Facts:
    tags, pictures = [], 1
    for name, at, end in _chunks(content):
        if name == b"eXIf":
            tags.append(_orientation(content[at + 8 : end - 4].removeprefix(_EXIF)))
        elif name == b"acTL" and end - at >= 20:
            pictures = max(1, *struct.unpack_from(">I", content, at + 8))
    if pictures > 1:
        raise BadImage(f"has {pictures} pictures in it; one is needed")
    width, height, depth, colours, _ = _head(content)
    orientation = 0 if len(tags) > 1 and tags[0] == 1 else tags[0] if tags else 1
    return Facts("png", width, height, orientation, deep=depth == 16 and colours == 0)


def _head(content: bytes) -> tuple[int, int, int, int, int]:
    """Return width, height, bits, colour type and interlacing of a PNG file."""
    name, at, end = next(_chunks(content))
    if name != b"IHDR" or end - at != 25:
        raise _fault(f"a PNG file that begins with {_chunk(name, at)}, or damaged")
    width, height, depth, colours, packing, filtering, interlaced = struct.unpack_from(
        ">IIBBBBB", content, at + 8
    )
    if depth not in _DEPTHS.get(colours, ()) or packing or filtering or interlaced > 1:
        raise _fault(f"a PNG file of {depth} bits, colour type {colours}, or damaged")
    return width, height, depth, colours, interlaced


def _check_png(content: bytes) -> None:
    """Refuse a PNG file at whose chunks, checksums or rows a decoder stops."""
    rows, palette, before = _Rows(content), False, b""
    for name, at, end in _chunks(content):
        where = _chunk(name, at)
        body = memoryview(content)[at + 8 : end - 4]
        if zlib.crc32(memoryview(content)[at + 4 : end - 4]) != int.from_bytes(
            content[end - 4 : end], "big"
        ):
            raise _fault(f"{where} does not have its checksum")
        if not name[0] & 0x20 and name not in (b"IHDR", b"PLTE", b"IDAT", b"IEND"):
            raise _fault(f"no decoder knows {where}")
        if name == b"IDAT":
            if rows.begun and before != b"IDAT":
                raise _fault(f"other pixels and other chunks lie before {where}")
            rows.add(body)
        palette = palette or (name == b"PLTE" and not rows.begun and 0 < len(body) <= 768)
        before = name
    if rows.colours == 3 and not palette:
        raise _fault("it has no palette before its pixels")
    rows.end()


class _Rows:
    """The unpacked bytes of a PNG file's rows, counted."""

    def __init__(self, content: bytes) -> None:
        width, height, depth, self.colours, interlaced = _head(content)
        bits = depth * _SAMPLES[self.colours]
        self._wanted = 0
        for column, row, right, down in _ADAM7 if interlaced else ((0, 0, 1, 1),):
            wide, high = -(-(width - column) // right), -(-(height - row) // down)
            self._wanted += (1 + (wide * bits + 7) // 8) * high if wide > 0 else 0
        self._found, self._unpack = 0, zlib.decompressobj()
        self.begun = False

    def add(self, body: bytes | memoryview) -> None:
        """Unpack one more part of them, a piece at a time: few bytes may become very many."""
        self.begun = True
        rest: bytes | memoryview = body
        while len(rest) and not self._unpack.eof and self._found <= 2 * self._wanted:
            try:
                self._found += len(self._unpack.decompress(rest, 1 << 20))
            except zlib.error as error:
                raise _fault(error) from error
            rest = self._unpack.unconsumed_tail

    def end(self) -> None:
        """Refuse rows that are missing."""
        if self._found < self._wanted or not self._unpack.eof:
            raise _fault(f"a truncated PNG file, which has {self._found:,} of the"
                           f" {self._wanted:,} bytes of its rows, or no end of them")


def _other(content: bytes) -> Facts:
    try:
        with Image.open(io.BytesIO(content), formats=OTHERS) as image:
            pictures = getattr(image, "n_frames", 1)
            exif = image.info.get("exif", b"") if image.format == "WEBP" else b""
            width, height = image.size
    except MemoryError:
        raise
    except Exception:  # as above
        raise _fault(
            f"it is no JPEG, PNG, {', '.join(OTHERS)} file (it begins with {content[:8]!r})"
        ) from None
    if pictures > 1:
        raise BadImage(f"has {pictures} pictures in it; one is needed")
    # Pillow turns TIFF by itself, as its tag of the same number says.
    turn = _orientation(exif.removeprefix(_EXIF)) if exif else 1
    return Facts("", width, height, turn, common=False)
