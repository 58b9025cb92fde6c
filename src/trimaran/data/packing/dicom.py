"""A DICOM file's picture, as X-rays come from hospitals: grey, of 8 bits, the air black."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

MAGIC = b"DICM"  # behind a preamble of 128 bytes: DICOM PS3.10, section 7.1
PREAMBLE = 128


def is_dicom(content: bytes) -> bool:
    """Return whether `content` begins as a DICOM file does."""
    return content[PREAMBLE : PREAMBLE + len(MAGIC)] == MAGIC


def picture(content: bytes) -> Image.Image:
    """Return the picture in its own window.

    DICOM PS3.3, C.7.6.3.1.2 (MONOCHROME1: the lowest value is white), C.11.1 and C.11.2 (tables and
    windows between what is stored and what is shown).

    Raises:
        ValueError: it has no pixels, more than one image, colours, or cannot be decoded.
    """
    import pydicom  # slow to import, and rarely needed
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    dataset = pydicom.dcmread(io.BytesIO(content))
    if "PixelData" not in dataset:
        raise ValueError("a DICOM file without pixels")
    try:
        stored = dataset.pixel_array
    except Exception as error:  # of pydicom's many plugins
        raise ValueError(f"its pixels cannot be read: {error}") from error
    if stored.ndim != 2:
        raise ValueError(f"one grey image is needed, this DICOM file has the shape {stored.shape}")
    shown = apply_voi_lut(apply_modality_lut(stored, dataset), dataset).astype(np.float64)
    low, high = shown.min(), shown.max()
    values = (shown - low) / max(high - low, 1e-9)
    if dataset.get("PhotometricInterpretation") == "MONOCHROME1":
        values = 1 - values
    return Image.fromarray(np.round(255 * values).astype(np.uint8))
