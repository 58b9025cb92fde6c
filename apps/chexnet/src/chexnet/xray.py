"""An X-ray from a file, as a picture of 8 bits: PNG, JPEG, or DICOM as hospitals keep them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from trainkit.exits import DataError

DICOM = b"DICM"  # behind a preamble of 128 bytes: DICOM PS3.10, section 7.1
GREY16 = ("I;16", "I;16B", "I")
USED16 = 1 << 14  # a picture of 16 bits has values from here on, or fewer bits than its file


MODES = {1: "L", 3: "RGB"}


def read(path: Path, channels: int = 1) -> Image.Image:
    """Return the picture, in grey (1 channel) or in colours (3), which a grey one then has, too.

    Raises:
        DataError: it cannot be read; the message names the file.
    """
    try:
        with path.open("rb") as file:
            file.seek(128)
            is_dicom = file.read(4) == DICOM
        picture = _dicom(path) if is_dicom else _picture(path)
        return picture.convert(MODES[channels])
    except UnidentifiedImageError:
        raise DataError(f"{path} is no PNG, JPEG or DICOM file") from None
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _picture(path: Path) -> Image.Image:
    with Image.open(path) as image:
        if image.mode in GREY16:
            return Image.fromarray(_eight(path, np.asarray(image, np.int64)))
        picture: Image.Image = image.copy()
        return picture


def _eight(path: Path, values: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return values of 16 bits in 8."""
    if not USED16 <= values.max() < 1 << 16:
        raise DataError(
            f"{path}: a picture of 16 bits whose values end at {values.max()} has another bit depth"
            " than its file: scale it to 8 or 16 bits, or give the DICOM file"
        )
    return (values >> 8).clip(0, 255).astype(np.uint8)


def _dicom(path: Path) -> Image.Image:
    """Return the pixels of a DICOM file in its own window, the air black.

    DICOM PS3.3, C.7.6.3.1.2 (MONOCHROME1: the lowest value is white), C.11.1 and C.11.2 (tables and
    windows between what is stored and what is shown).
    """
    import pydicom
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    try:
        dataset = pydicom.dcmread(path)
        if "PixelData" not in dataset:
            raise DataError(f"{path}: a DICOM file without pixels")
        stored = dataset.pixel_array
        if stored.ndim != 2:
            raise DataError(
                f"{path}: one grey image is needed, this one has the shape {stored.shape}"
            )
        shown: NDArray[np.float64] = np.asarray(
            apply_voi_lut(apply_modality_lut(stored, dataset), dataset), np.float64
        )
    except DataError:
        raise
    except Exception as error:  # of pydicom and its plugins: for a window of no width a ValueError
        raise DataError(f"{path}: its pixels cannot be decoded: {error}") from error
    low, high = shown.min(), shown.max()
    values = (shown - low) / max(high - low, 1e-9)
    if dataset.get("PhotometricInterpretation") == "MONOCHROME1":
        values = 1 - values
    return Image.fromarray(np.round(255 * values).astype(np.uint8))
