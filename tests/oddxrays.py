"""Create DICOM files of every kind, with the expected pixels or the expected error.

The tests of the packer and of CheXNet use this table, so that both decode files in the same way.
The expected pixels are computed with NumPy from the stored pixels.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from pydicom.datadict import dictionary_VR
from pydicom.tag import Tag
from pydicom.uid import UID, ExplicitVRLittleEndian, JPEGLosslessSV1, RLELossless

Pixels = np.ndarray
ITEM = struct.pack("<HH", 0xFFFE, 0xE000)  # tag of an item of compressed pixels: DICOM PS3.5, A.4
END = struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
RAMP = np.arange(100, 100 + 12 * 16, dtype=np.uint16).reshape(12, 16)


class Case(NamedTuple):
    """A DICOM file with its pixels (H, W); for a faulty file, None and a pattern of the error."""

    content: bytes
    pixels: Pixels | None = None
    says: str = ""


def shown(values: Pixels, low: float | None = None, high: float | None = None) -> Pixels:
    """Return the values as 8-bit grey levels; `low` is black, and `high` is white."""
    low = values.min() if low is None else low
    high = values.max() if high is None else high
    parts = np.clip((values - float(low)) / (float(high) - low), 0, 1)
    return np.round(255 * parts).astype(np.uint8)


def element(name: str, value: Any) -> tuple[int, bytes]:
    """Return tag and bytes of an element: explicit VR, little-endian (DICOM PS3.5, section 7.1).

    A value of type bytes is not checked, because libraries refuse to write malformed values.
    """
    tag = int(Tag(name))
    kind = dictionary_VR(tag).split(" ")[0]
    if kind == "US" and isinstance(value, int):
        kind = "SS" if value < 0 else kind
        value = struct.pack("<h" if value < 0 else "<H", value)
    elif not isinstance(value, bytes):
        value = "\\".join(value if isinstance(value, list) else [str(value)]).encode()
    value += (b"\0" if kind == "UI" else b" ") * (len(value) % 2)
    head = struct.pack("<HH2s", tag >> 16, tag & 0xFFFF, ("OW" if kind == "OB" else kind).encode())
    if name != "PixelData":
        return tag, head + struct.pack("<H", len(value)) + value
    length = 0xFFFFFFFF if value.startswith(ITEM) else len(value)
    return tag, head + struct.pack("<HI", 0, length) + value


def dicom(values: Pixels = RAMP, *, syntax: UID = ExplicitVRLittleEndian, **elements: Any) -> bytes:
    """Return a DICOM file with these elements; an element that is None is omitted."""
    bits = 8 * values.dtype.itemsize
    usual = {
        "SamplesPerPixel": 1, "PhotometricInterpretation": "MONOCHROME2",
        "Rows": values.shape[0], "Columns": values.shape[1], "BitsAllocated": bits,
        "BitsStored": bits, "HighBit": bits - 1,
        "PixelRepresentation": int(values.dtype.kind == "i"), "PixelData": values.tobytes(),
    }
    found = [element(*one) for one in (usual | elements).items() if one[1] is not None]
    return bytes(128) + b"DICM" + b"".join(
        content for _, content in sorted([element("TransferSyntaxUID", str(syntax)), *found])
    )


def cases() -> Iterator[tuple[str, Case]]:
    yield from good()
    yield from odd_numbers()
    yield from other_kinds()


def good() -> Iterator[tuple[str, Case]]:
    yield "grey", Case(dicom(), shown(RAMP))
    yield "inverse", Case(dicom(PhotometricInterpretation="MONOCHROME1"), 255 - shown(RAMP))
    yield "8 bits", Case(dicom(RAMP.astype(np.uint8)), shown(RAMP.astype(np.uint8)))
    yield "signed", Case(dicom(RAMP.astype(np.int16) - 150), shown(RAMP.astype(int)))
    yield "scaled", Case(dicom(RescaleSlope="2", RescaleIntercept="-1024"), shown(RAMP))
    yield "negative slope", Case(dicom(RescaleSlope="-1", RescaleIntercept="0"),
                                 shown(-RAMP.astype(int)))
    window = shown(RAMP, 149.5, 189.5)
    yield "window", Case(dicom(WindowCenter="170", WindowWidth="41"), window)
    yield "two windows", Case(dicom(WindowCenter=["170", "9"], WindowWidth=["41", "2"]), window)
    beside = RAMP | np.uint16(0xF000)
    yield "overlay in the unused bits", Case(dicom(beside, BitsStored=12, HighBit=11), shown(RAMP))
    below = np.where(RAMP % 3 == 0, 0x0F00, RAMP).astype(np.uint16)
    yield "signed of 12 bits", Case(
        dicom(below, BitsStored=12, HighBit=11, PixelRepresentation=1),
        shown(np.where(RAMP % 3 == 0, -256, RAMP.astype(int))))
    yield "high bits", Case(dicom(RAMP << 4, BitsStored=12, HighBit=15), shown(RAMP))
    yield "flat", Case(dicom(np.full((4, 4), 7, np.uint16)), np.zeros((4, 4), np.uint8))
    edge = RAMP.astype(np.int16)
    edge[:, :3] = -2000
    inner = np.where(edge == -2000, 0, shown(edge, edge[edge > 0].min()))
    yield "padding", Case(dicom(edge, PixelPaddingValue=-2000), inner)
    yield "padding, inverse", Case(
        dicom(edge, PixelPaddingValue=-2000, PhotometricInterpretation="MONOCHROME1"),
        np.where(edge == -2000, 0, 255 - inner))
    yield "padding, scaled", Case(
        dicom(edge, PixelPaddingValue=-2000, RescaleSlope="3", RescaleIntercept="9"), inner)
    yield "padding as if without sign", Case(
        dicom(edge, PixelPaddingValue=(65536 - 2000).to_bytes(2, "little")), inner)
    span = RAMP.astype(np.int16)
    span[:, 0], span[:, 1], span[:, 2] = -2000, -1900, -1500
    yield "a range of padding", Case(
        dicom(span, PixelPaddingValue=-2000, PixelPaddingRangeLimit=-1500), inner)
    outside = np.where(edge == -2000, -32768, RAMP.astype(np.int16))
    yield "padding outside of the stored bits", Case(
        dicom(outside.astype(np.int16), BitsStored=12, HighBit=11, PixelPaddingValue=-32768), inner)
    bright = RAMP.copy()
    bright[:, :3] = 65535
    yield "bright padding", Case(dicom(bright, PixelPaddingValue=65535), inner)
    yield "padding that is nowhere", Case(dicom(PixelPaddingValue=9), shown(RAMP))


def odd_numbers() -> Iterator[tuple[str, Case]]:
    pair = {"RescaleSlope": "RescaleIntercept", "RescaleIntercept": "RescaleSlope",
            "WindowCenter": "WindowWidth", "WindowWidth": "WindowCenter"}
    for name, other in pair.items():
        for odd in (b"", b"20,8", b"AUTO", b"NaN", b"inf", b"1e999", b"--1", b"\\7", b"0x10"):
            says = f"its {name} is .*not a number"
            yield f"{name} {odd!r}", Case(dicom(**{name: odd, other: "1"}), says=says)
        yield f"{name} alone", Case(dicom(**{name: "1"}), says=f"it has {name} without {other}")
    for name in ("RescaleSlope", "RescaleIntercept"):
        yield f"{name} of two", Case(dicom(**{name: b"1\\2", pair[name]: "1"}),
                                     says=f"its {name} is '.1, 2.', which is not a number")
    yield "slope of 0", Case(dicom(RescaleSlope="0", RescaleIntercept="1"),
                             says="RescaleSlope is 0")
    for width in ("0", "-5"):
        yield f"window of {width}", Case(dicom(WindowCenter="9", WindowWidth=width),
                                         says=f"WindowWidth is {width}")
    yield "window of a part", Case(dicom(WindowCenter="9", WindowWidth="0.5"),
                                   says="window or tables cannot be applied")
    yield "window of no such form", Case(
        dicom(WindowCenter="9", WindowWidth="5", VOILUTFunction="CUBIC"),
        says="window or tables cannot be applied")
    for name in ("Rows", "Columns", "BitsAllocated", "BitsStored"):
        yield f"{name} missing", Case(dicom(**{name: None}), says=f"its {name} is empty or missing")
        yield f"{name} empty", Case(dicom(**{name: b""}), says=f"its {name} is empty or missing")
        yield f"{name} of 0", Case(dicom(**{name: 0}), says=f"its {name} is (0|less than 1)")
    yield "NumberOfFrames of text", Case(dicom(NumberOfFrames=b"many"),
                                         says="its NumberOfFrames is 'many'")
    yield "more bits than there are", Case(dicom(BitsStored=20), says="cannot be read|BitsStored")
    yield "HighBit too low", Case(dicom(BitsStored=12, HighBit=5), says="HighBit")
    yield "HighBit empty", Case(dicom(HighBit=b""), says="HighBit")
    yield "BitsAllocated of 12", Case(dicom(BitsAllocated=12, BitsStored=12, HighBit=11),
                                      says="its BitsAllocated is 12")
    yield "PixelRepresentation missing", Case(dicom(PixelRepresentation=None),
                                              says="cannot be read")
    yield "padding empty", Case(dicom(PixelPaddingValue=b""),
                                says="its PixelPaddingValue is empty")
    yield "padding everywhere", Case(dicom(np.full((4, 4), 7, np.uint16), PixelPaddingValue=7),
                                     says="all of its pixels are padding")
    yield "padding to nowhere", Case(dicom(PixelPaddingRangeLimit=7),
                                     says="PixelPaddingRangeLimit without PixelPaddingValue")
    yield "very many pixels", Case(dicom(Rows=65_000, Columns=65_000), says="4,225,000,000 pixels")


def other_kinds() -> Iterator[tuple[str, Case]]:
    for kind in ("PALETTE COLOR", "RGB", "YBR_FULL", "ARGB", "GREY"):
        yield kind, Case(dicom(PhotometricInterpretation=kind),
                         says=f"its PhotometricInterpretation is '{kind}'")
    yield "no such element", Case(dicom(PhotometricInterpretation=None),
                                  says="its PhotometricInterpretation is ''")
    yield "three channels", Case(dicom(SamplesPerPixel=3), says="its SamplesPerPixel is 3")
    yield "two frames", Case(dicom(NumberOfFrames=2, Rows=6), says="its NumberOfFrames is 2")
    yield "without pixels", Case(dicom(PixelData=None), says="without pixels")
    yield "too few pixels", Case(dicom(PixelData=RAMP.tobytes()[:-40]), says="cannot be read")
    yield "no pixels at all", Case(dicom(PixelData=b""), says="cannot be read")
    packed = ITEM + bytes(4) + ITEM + struct.pack("<I", 8) + b"\xff\xd8\xff\xc3junk" + END
    yield "JPEG lossless", Case(dicom(syntax=JPEGLosslessSV1, PixelData=packed),
                                says="JPEG Lossless.* cannot be read")
    yield "RLE damaged", Case(dicom(syntax=RLELossless, PixelData=packed),
                              says="RLE Lossless.* cannot be read")
    yield "a head alone", Case(bytes(128) + b"DICM", says="without pixels|cannot be read")
    yield "cut in its elements", Case(dicom()[:300], says="without pixels|cannot be read|missing")
    yield "junk behind its head", Case(bytes(128) + b"DICM" + b"\xff" * 99,
                                       says="without pixels|cannot be read")


CASES = dict(cases())
GOOD = {name: case for name, case in CASES.items() if case.pixels is not None}
BAD = {name: case for name, case in CASES.items() if case.pixels is None}
