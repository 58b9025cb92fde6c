"""Convert a grey DICOM image, such as an X-ray, to 8 bits."""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shards.picturefacts import decoding

MAGIC = b"DICM"  # follows a preamble of 128 bytes: DICOM PS3.10, section 7.1
PREAMBLE = 128
MOST_PIXELS = 178_956_970  # as for other pictures: a small file may declare more
GREY = ("MONOCHROME1", "MONOCHROME2")


def is_dicom(content: bytes) -> bool:
    """Return whether `content` has the magic bytes of a DICOM file."""
    return content[PREAMBLE : PREAMBLE + len(MAGIC)] == MAGIC


def picture(content: bytes) -> Image.Image:
    """Return the grey picture of a DICOM file, with the brightness window that the file defines.

    The steps follow DICOM PS3.3: C.7.6.3.1.2 (MONOCHROME1: the lowest value is white),
    C.7.5.1.1.2 (padding), C.11.1 and C.11.2 (tables and windows that map stored values to
    displayed values).

    Raises:
        ValueError: the file has no pixels, several images, colours or an invalid number, or its
            pixels cannot be decoded.
    """
    import pydicom  # slow to import, and rarely needed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # unusual values; those that matter are errors
        with decoding(lambda error: ValueError(f"its elements cannot be read: {error}")):
            dataset = pydicom.dcmread(io.BytesIO(content))
        _check_kind(dataset)
        _check_numbers(dataset)
        cells = _pixels(dataset)
        return _eight_bits(_shown(_stored(cells, dataset), dataset), _padding(cells, dataset),
                           inverse=_text(dataset, "PhotometricInterpretation") == GREY[0])


def _eight_bits(
    shown: NDArray[np.float64], padding: NDArray[np.bool_], *, inverse: bool
) -> Image.Image:
    """Return a picture of displayed values, scaled from their minimum and maximum to 0..255.

    Args:
        shown: displayed values, (height, width).
        padding: mask of the padding, (height, width). The padding is excluded from minimum and
            maximum, and becomes 0.
        inverse: whether the lowest value is white.

    Raises:
        ValueError: all pixels are padding.
    """
    if padding.all():
        raise ValueError("all of its pixels are padding")
    seen = shown[~padding]
    low, high = seen.min(), seen.max()
    values = (shown - low) / max(high - low, 1e-9)
    if inverse:
        values = 1 - values
    values[padding] = 0
    return Image.fromarray(np.round(255 * values).astype(np.uint8))


def _check_kind(dataset: Any) -> None:
    """Raise ValueError unless the file contains exactly one grey image of a supported size."""
    if "PixelData" not in dataset:
        raise ValueError("a DICOM file without pixels")
    colours = _text(dataset, "PhotometricInterpretation")
    if colours not in GREY:
        raise ValueError(f"its PhotometricInterpretation is {colours!r}: only grey images,"
                         f" {' or '.join(GREY)}, can be read")
    for keyword in ("SamplesPerPixel", "NumberOfFrames"):
        if keyword in dataset and (count := _number(dataset, keyword)) != 1:
            raise ValueError(f"one grey image is needed, its {keyword} is {count:g}")
    for keyword in ("Rows", "Columns", "BitsStored"):
        if _number(dataset, keyword) < 1:
            raise ValueError(f"its {keyword} is less than 1")
    if (pixels := _number(dataset, "Rows") * _number(dataset, "Columns")) > MOST_PIXELS:
        raise ValueError(f"it has {pixels:,.0f} pixels: {MOST_PIXELS:,} at most can be read")
    if (bits := _number(dataset, "BitsAllocated")) not in (1, 8, 16, 32):
        raise ValueError(f"its BitsAllocated is {bits:g}: 1, 8, 16 or 32 can be read")


def _check_numbers(dataset: Any) -> None:
    """Raise ValueError if the scale or window is incomplete, 0 or not a number.

    pydicom would ignore such a value or crash.
    """
    for one, other in (("RescaleSlope", "RescaleIntercept"), ("WindowWidth", "WindowCenter")):
        for keyword, partner in ((one, other), (other, one)):
            if keyword in dataset:
                _number(dataset, keyword)
                if partner not in dataset:
                    raise ValueError(f"it has {keyword} without {partner}")
    if "RescaleSlope" in dataset and _number(dataset, "RescaleSlope") == 0:
        raise ValueError("its RescaleSlope is 0, so that all pixels would have the same value")
    if "WindowWidth" in dataset and (width := _number(dataset, "WindowWidth")) <= 0:
        raise ValueError(f"its WindowWidth is {width:g}: a window has a width of more than 0")


def _pixels(dataset: Any) -> NDArray[np.int64]:
    """Return the pixels, (Rows, Columns).

    In a compressed file, a pixel is the value from the decoder. In other files, it is the DICOM
    pixel cell (BitsAllocated wide), which may contain bits that do not belong to the value.
    """
    name = getattr(_syntax(dataset), "name", "of an unknown transfer syntax")
    with decoding(lambda error: ValueError(f"its pixels, {name}, cannot be read: {error}")):
        if not _is_compressed(dataset):
            # pydicom's correction ignores HighBit and would lose padding values beyond BitsStored.
            dataset.pixel_array_options(correct_unused_bits=False)
        pixels = np.asarray(dataset.pixel_array)
    if pixels.ndim != 2:
        raise ValueError(f"one grey image is needed, this DICOM file has the shape {pixels.shape}")
    return pixels.astype(np.int64)


def _syntax(dataset: Any) -> Any:
    return getattr(getattr(dataset, "file_meta", None), "TransferSyntaxUID", None)


def _is_compressed(dataset: Any) -> bool:
    return bool(getattr(_syntax(dataset), "is_compressed", False))


def _stored(cells: NDArray[np.int64], dataset: Any) -> NDArray[np.int64]:
    """Return the stored values, (Rows, Columns), without the unused bits of each cell."""
    bits, values = int(_number(dataset, "BitsStored")), cells
    if not _is_compressed(dataset):  # a decoder returns values, not cells
        highest = int(_number(dataset, "HighBit")) if "HighBit" in dataset else bits - 1
        if not bits - 1 <= highest < _number(dataset, "BitsAllocated"):
            raise ValueError(f"its HighBit {highest} does not fit its BitsStored {bits}")
        values = (cells >> highest + 1 - bits) & ((1 << bits) - 1)
    if _is_signed(dataset):
        values = np.where(values >= 1 << bits - 1, values - (1 << bits), values)
    return values


def _is_signed(dataset: Any) -> bool:
    return "PixelRepresentation" in dataset and _number(dataset, "PixelRepresentation") == 1


def _shown(stored: NDArray[np.int64], dataset: Any) -> NDArray[np.float64]:
    """Return the grey values of a DICOM image for display, (Rows, Columns).

    The modality table (or rescale slope and intercept) is applied to the stored values, then
    the VOI (value of interest) table or the window.
    """
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    with decoding(lambda error: ValueError(f"its window or tables cannot be applied: {error}")):
        scaled = apply_modality_lut(stored, dataset)
        shown: NDArray[np.float64] = np.asarray(apply_voi_lut(scaled, dataset), np.float64)
    if not np.isfinite(shown).all():
        raise ValueError("its window or scale gives values that are not finite")
    return shown


def _padding(cells: NDArray[np.int64], dataset: Any) -> NDArray[np.bool_]:
    """Return a mask, (Rows, Columns), of the pixels that the file declares as padding."""
    keywords = [one for one in ("PixelPaddingValue", "PixelPaddingRangeLimit") if one in dataset]
    if not keywords:
        return np.zeros(cells.shape, np.bool_)
    if "PixelPaddingValue" not in keywords:
        raise ValueError("it has PixelPaddingRangeLimit without PixelPaddingValue")
    span = 1 << int(_number(dataset, "BitsAllocated"))
    # Some writers store the padding value -2000 as 63536, or the reverse.
    limits = [int(_number(dataset, one)) % span for one in keywords]
    if _is_signed(dataset):
        limits = [one - span if one >= span // 2 else one for one in limits]
    return np.asarray((cells >= min(limits)) & (cells <= max(limits)))


def _text(dataset: Any, keyword: str) -> str:
    try:
        return str(dataset.get(keyword) or "")
    except Exception as error:  # pydicom decodes an element when it is read
        raise ValueError(f"its {keyword} cannot be read: {error}") from error


def _number(dataset: Any, keyword: str) -> float:
    """Return the number in the element `keyword` of a DICOM file.

    If a file has several display windows, return the number of the first window.
    """
    from pydicom.multival import MultiValue

    try:
        value = dataset.get(keyword)
        if keyword.startswith("Window") and isinstance(value, MultiValue):
            value = value[0]
        number = float(value)
    except Exception as error:  # pydicom decodes an element when it is read
        found = _raw(dataset, keyword)
        raise ValueError(f"its {keyword} is {found}, which is not a number") from error
    if not math.isfinite(number):
        raise ValueError(f"its {keyword} is {number}, which is not a number to count with")
    return number


def _raw(dataset: Any, keyword: str) -> str:
    """Return the text of an element that is not a number, quoted for an error message."""
    element = dataset.get_item(keyword)
    value = getattr(element, "value", None)
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value or "")
    return repr(text.strip(" \0")[:40]) if text.strip(" \0") else "empty or missing"
