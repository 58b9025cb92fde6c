"""Create image files of every kind, with the expected pixels or the expected error.

The tests of the packer and of each app use this table, so that both decode images in the same way.
The expected pixels are computed with NumPy from those of `drawn`.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

Pixels = np.ndarray


class Case(NamedTuple):
    """An image file and the expected result of its decoding.

    Attributes:
        content: the bytes of the file.
        pixels: pixels of the upright image, (H, W) or (H, W, 3); None: reading the file must
            fail.
        says: pattern of the error message.
        plain: whether every decoder reads these pixels from the file, so that the packer keeps
            the file; otherwise, the packer encodes the image again.
        near: largest allowed difference of a pixel value, for JPEG.
    """

    content: bytes
    pixels: Pixels | None = None
    says: str = ""
    plain: bool = True
    near: int = 0


def drawn() -> Pixels:
    """Return 24 x 32 pixels that differ in all eight orientations.

    Edges are at the borders of JPEG blocks and the chroma is constant, so JPEG loses little.
    """
    light = np.full((24, 32), 60, np.uint8)
    light[:8, :16], light[:8, 16:], light[16:, :8] = 160, 110, 200
    return np.dstack([light + 40, light, light - 40])


RGB = drawn()
GREY = np.asarray(Image.fromarray(RGB).convert("L"))
DEEP = (np.arange(24 * 32, dtype=np.uint16) * 85).reshape(24, 32)
TOP = (DEEP >> 8).astype(np.uint8)
UPRIGHT = {
    1: RGB, 2: RGB[:, ::-1], 3: RGB[::-1, ::-1], 4: RGB[::-1], 5: RGB.transpose(1, 0, 2),
    6: np.rot90(RGB, -1), 7: np.rot90(RGB, 2).transpose(1, 0, 2), 8: np.rot90(RGB),
}
"""EXIF orientation (EXIF 2.32, table 6) -> pixels of the upright image."""


def saved(pixels: Pixels | Image.Image, form: str, **options: Any) -> bytes:
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def exif(*tags: tuple[int, int, int, bytes], order: str = ">") -> bytes:
    """Return EXIF data with these tags: number, type, count, and the four bytes of the value."""
    entries = b"".join(struct.pack(f"{order}HHI4s", *tag) for tag in tags)
    head = b"MM\0*" if order == ">" else b"II*\0"
    return head + struct.pack(f"{order}IH", 8, len(tags)) + entries + bytes(4)


def turned(orientation: int) -> bytes:
    return exif((0x112, 3, 1, struct.pack(">HH", orientation, 0)))


def jpeg(**options: Any) -> bytes:
    return saved(RGB, "JPEG", quality=95, subsampling=0, **options)


def segment(marker: int, body: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def with_exif(*found: bytes) -> bytes:
    """Return a JPEG with these EXIF segments."""
    content = jpeg()
    return content[:2] + b"".join(segment(0xE1, b"Exif\0\0" + one) for one in found) + content[2:]


def framed(marker: int = 0xC0, depth: int = 8, size: tuple[int, int] = (24, 32)) -> bytes:
    """Return a JPEG with this marker, bit depth and (height, width) in its frame header."""
    content = jpeg()
    at = content.index(b"\xff\xc0")
    return (content[: at + 1] + bytes([marker]) + content[at + 2 : at + 4] + bytes([depth])
            + struct.pack(">HH", *size) + content[at + 9 :])


def chunk(name: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def rows(pixels: Pixels) -> bytes:
    return b"".join(b"\0" + row.tobytes() for row in pixels)


HEAD = struct.pack(">IIBBBBB", 32, 24, 8, 2, 0, 0, 0)
PACKED = zlib.compress(rows(RGB))


def png(*between: bytes, head: bytes = HEAD, body: bytes = PACKED, after: bytes = b"") -> bytes:
    """Return a PNG with the chunks `between` header and pixels, and a chunk `after` the pixels."""
    end = b"".join([chunk(b"IDAT", body), after, chunk(b"IEND")])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(between) + end


def head(depth: int, colours: int, interlaced: int = 0) -> bytes:
    return struct.pack(">IIBBBBB", 32, 24, depth, colours, 0, 0, interlaced)


def interlaced() -> bytes:
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
              (0, 1, 1, 2))
    body = b"".join(rows(np.ascontiguousarray(RGB[y::down, x::right]))
                    for x, y, right, down in passes)
    return png(head=head(8, 2, 1), body=zlib.compress(body))


def wrong_sum(content: bytes, name: bytes) -> bytes:
    """Return the PNG with a wrong checksum in its chunk `name`."""
    at = content.index(name)
    end = at + 4 + int.from_bytes(content[at - 4 : at], "big")
    return content[:end] + bytes([content[end] ^ 255]) + content[end + 1 :]


def cases() -> Iterator[tuple[str, Case]]:
    yield from good_jpegs()
    yield from good_pngs()
    yield from bad_jpegs()
    yield from bad_pngs()
    for form in ("GIF", "ICO"):
        yield form, Case(saved(Image.fromarray(RGB).quantize(8), form), says="not a JPEG")
    yield "nothing", Case(b"", says="not a JPEG")
    yield "text", Case(b"no picture" * 30, says="not a JPEG")


def good_jpegs() -> Iterator[tuple[str, Case]]:
    near = 12
    yield "jpeg", Case(jpeg(), RGB, near=near)
    yield "jpeg grey", Case(saved(GREY, "JPEG", quality=95), GREY, near=near)
    yield "jpeg progressive", Case(jpeg(progressive=True), RGB, near=near)
    yield "jpeg extended", Case(framed(0xC1), RGB, near=near)
    yield "jpeg of RGB", Case(saved(RGB, "JPEG", quality=95, keep_rgb=True), RGB, near=near)
    yield "jpeg with more behind", Case(jpeg() + b"more" * 9, RGB, near=near)
    yield "jpeg with a comment", Case(jpeg(comment=b"by me"), RGB, near=near)
    yield "several pictures of a camera", Case(
        saved(Image.fromarray(RGB), "MPO", save_all=True, quality=95, subsampling=0,
              append_images=[Image.fromarray(RGB[::-1])]), RGB, near=2 * near)
    yield "jpeg CMYK", Case(saved(Image.fromarray(RGB).convert("CMYK"), "JPEG", quality=95), RGB,
                            plain=False, near=2 * near)
    for at, pixels in UPRIGHT.items():
        yield f"jpeg orientation {at}", Case(with_exif(turned(at)), pixels, plain=at == 1,
                                             near=2 * near)
    for name, odd, pixels, plain in (
        ("0", turned(0), RGB, True), ("9", turned(9), RGB, True), ("junk", b"no such", RGB, True),
        ("as text", exif((0x112, 2, 2, b"6\0\0\0")), RGB, True),
        ("of two", exif((0x112, 3, 2, b"\0\6\0\6")), RGB, False),
        ("of 32 bits", exif((0x112, 4, 1, b"\0\0\0\6")), UPRIGHT[6], False),
        ("least byte first", exif((0x112, 3, 1, b"\6\0\0\0"), order="<"), UPRIGHT[6], False),
        ("beside an odd tag", exif((0x112, 3, 1, b"\0\6\0\0"), (0x11A, 2, 3, b"72\0\0")),
         UPRIGHT[6], False),
    ):
        yield f"jpeg orientation {name}", Case(with_exif(odd), pixels, plain=plain, near=2 * near)
    yield "jpeg EXIF twice", Case(with_exif(turned(6), turned(3)), UPRIGHT[6], plain=False,
                                  near=2 * near)
    yield "jpeg EXIF twice, upright", Case(with_exif(turned(1), turned(3)), RGB, plain=False,
                                           near=near)


def good_pngs() -> Iterator[tuple[str, Case]]:
    yield "png", Case(png(), RGB)
    yield "png grey", Case(saved(GREY, "PNG"), GREY)
    for at, pixels in UPRIGHT.items():
        yield f"png orientation {at}", Case(png(chunk(b"eXIf", turned(at))), pixels, plain=at == 1)
        yield f"png orientation {at} behind", Case(png(after=chunk(b"eXIf", turned(at))), pixels,
                                                   plain=at == 1)
    deep = zlib.compress(rows(DEEP.astype(">u2")))
    yield "png grey of 16 bits", Case(png(head=head(16, 0), body=deep), TOP, near=1)
    colours = np.dstack([DEEP, DEEP[::-1], DEEP[:, ::-1]])
    body = zlib.compress(rows(colours.astype(">u2")))
    yield "png RGB of 16 bits", Case(png(head=head(16, 2), body=body),
                                     (colours >> 8).astype(np.uint8), near=1)
    alpha = np.full((24, 32), 90, np.uint8)
    yield "png with alpha", Case(saved(np.dstack([RGB, alpha]), "PNG"), RGB)
    yield "png grey with alpha", Case(
        png(head=head(8, 4), body=zlib.compress(rows(np.dstack([GREY, alpha])))),
        np.dstack([GREY] * 3))
    yield "png with a clear colour", Case(saved(RGB, "PNG", transparency=(60, 60, 60)), RGB)
    few = Image.fromarray(RGB).quantize(8)
    yield "png with a palette", Case(saved(few, "PNG"), np.asarray(few.convert("RGB")))
    yield "png with a clear palette", Case(saved(few, "PNG", transparency=bytes(range(8))),
                                           np.asarray(few.convert("RGB")))
    black = (GREY > 70).astype(np.uint8)
    yield "png of 1 bit", Case(
        png(head=head(1, 0), body=zlib.compress(rows(np.packbits(black, axis=1)))),
        np.dstack([black * 255] * 3))
    four = GREY // 17
    yield "png of 4 bits", Case(
        png(head=head(4, 0), body=zlib.compress(rows(four[:, ::2] << 4 | four[:, 1::2]))),
        four * 17)
    yield "png interlaced", Case(interlaced(), RGB)
    yield "png with more behind", Case(png() + b"more" * 9, RGB)
    yield "png of two parts", Case(png(chunk(b"IDAT", PACKED[:20]), body=PACKED[20:]), RGB)
    much = b"a\0" + b"x" * 1_200_000
    packed = zlib.compress(b"x" * 2_000_000)
    yield "png with much text", Case(png(chunk(b"tEXt", much), chunk(b"tEXt", much)), RGB)
    yield "png with much packed text", Case(png(chunk(b"zTXt", b"a\0\0" + packed)), RGB)
    yield "png with much text behind", Case(
        png(after=chunk(b"iTXt", b"a\0\1\0\0\0" + packed)), RGB)
    yield "png with a large profile", Case(png(chunk(b"iCCP", b"a\0\0" + packed)), RGB)
    yield "png with an odd profile", Case(png(chunk(b"iCCP", b"a\0\0junk")), RGB)
    yield "png with rows too many", Case(png(body=zlib.compress(rows(RGB) + bytes(97))), RGB)


def bad_jpegs() -> Iterator[tuple[str, Case]]:
    yield "jpeg cut off", Case(jpeg()[:-200], says="truncated")
    yield "jpeg progressive cut off", Case(jpeg(progressive=True)[:-200], says="truncated")
    yield "jpeg without its end", Case(jpeg()[:-2], says="truncated")
    yield "jpeg cut in its head", Case(jpeg()[:60], says="truncated")
    yield "jpeg with more in front", Case(b"\0\0" + jpeg(), says="not a JPEG")
    yield "jpeg lossless", Case(framed(0xC3), says="SOF3")
    yield "jpeg of 12 bits", Case(framed(0xC1, 12), says="12 bits")
    yield "jpeg of no height", Case(framed(size=(0, 32)), says="32x0 pixels")
    yield "jpeg of very many pixels", Case(framed(size=(65_000, 65_000)), says="65000x65000 pixels")


def bad_pngs() -> Iterator[tuple[str, Case]]:
    yield "png without IEND", Case(png()[:-12], says="IEND is missing")
    yield "png cut in IEND", Case(png()[:-6], says="IEND is missing|truncated")
    yield "png cut in its pixels", Case(png()[:90], says="truncated")
    for name in (b"IHDR", b"IDAT", b"IEND"):
        yield f"png wrong sum of {name.decode()}", Case(wrong_sum(png(), name), says="checksum")
    yield "png wrong sum of text", Case(wrong_sum(png(chunk(b"tEXt", b"a\0b")), b"tEXt"),
                                        says="'tEXt' at byte 33 does not have its checksum")
    yield "png without rows", Case(png(body=zlib.compress(rows(RGB[:12]))),
                                   says="1,164 of the 2,328")
    yield "png interlaced without rows", Case(
        png(head=head(8, 2, 1), body=zlib.compress(rows(RGB)[:900])), says="900 of the")
    yield "png with pixels cut", Case(png(body=PACKED[:-8]), says="truncated")
    yield "png with a wrong sum inside", Case(png(body=PACKED[:-1] + b"x"),
                                              says="cannot be decoded")
    yield "png of no such filter", Case(png(body=zlib.compress(b"\x09" + rows(RGB)[1:])),
                                        says="cannot be decoded")
    yield "png with an unknown chunk", Case(png(chunk(b"ABCD")),
                                            says="no decoder supports .*'ABCD'")
    yield "png of a telephone", Case(
        b"\x89PNG\r\n\x1a\n" + chunk(b"CgBI", bytes(4)) + png()[8:], says="begins with .*CgBI")
    yield "png with a gap", Case(
        png(chunk(b"IDAT", PACKED[:20]), chunk(b"tEXt", b"a\0b"), body=PACKED[20:]),
        says="other chunks")
    yield "png without a palette", Case(
        png(head=head(8, 3), body=zlib.compress(rows(GREY))), says="palette")
    yield "png without pixels", Case(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", HEAD) + chunk(b"IEND"), says="0 of the")
    yield "png of no width", Case(png(head=struct.pack(">II", 0, 24) + HEAD[8:]),
                                  says="0x24 pixels")
    yield "png of very many pixels", Case(png(head=struct.pack(">II", 60_000, 60_000) + HEAD[8:]),
                                          says="60000x60000 pixels")
    yield "png that moves", Case(
        saved(Image.fromarray(RGB), "PNG", save_all=True,
              append_images=[Image.fromarray(RGB[::-1])]), says="2 pictures")
    twelve = zlib.compress(rows((DEEP >> 4).astype(">u2")))
    yield "png of 12 bits in 16", Case(png(head=head(16, 0), body=twelve), says="values end at")


CASES = dict(cases())
GOOD = {name: case for name, case in CASES.items() if case.pixels is not None}
BAD = {name: case for name, case in CASES.items() if case.pixels is None}


def others() -> Iterator[tuple[str, Case]]:
    """Yield images in formats that apps can read, but that are never packed.

    A value is the name of an image, and a `Case`: the file and the expected pixels.
    """
    for form in ("BMP", "TIFF", "WEBP", "PPM"):
        options = {"lossless": True} if form == "WEBP" else {}
        yield form, Case(saved(RGB, form, **options), RGB, plain=False)
    yield "TIFF orientation 6", Case(saved(RGB, "TIFF", exif=b"Exif\0\0" + turned(6)), UPRIGHT[6],
                                     plain=False)
    yield "WEBP orientation 6", Case(
        saved(RGB, "WEBP", lossless=True, exif=b"Exif\0\0" + turned(6)), UPRIGHT[6], plain=False)
    for form in ("TIFF", "PPM"):
        yield f"{form} of 16 bits", Case(saved(DEEP, form), TOP, plain=False)
    yield "TIFF of fractions", Case(saved(GREY.astype(np.float32), "TIFF"), says="of the kind F")
    for form in ("TIFF", "WEBP"):
        yield f"{form} of several", Case(
            saved(Image.fromarray(RGB), form, save_all=True,
                  append_images=[Image.fromarray(RGB[::-1])]), says="2 pictures")


OTHERS = dict(others())


def different(found: Pixels, case: Case) -> str:
    """Return the difference between `found` and the pixels of `case`; "": they are equal."""
    assert case.pixels is not None
    if found.shape != case.pixels.shape:
        return f"{found.shape} for {case.pixels.shape}"
    most = int(np.abs(found.astype(int) - case.pixels).max())
    return f"off by {most}" if most > case.near else ""
