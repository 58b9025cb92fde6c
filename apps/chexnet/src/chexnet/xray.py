"""An X-ray from a file, as a picture of 8 bits: PNG, JPEG, or DICOM as hospitals keep them."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from shards import dicom, picturefile
from shards.picturefacts import BadImage
from trainkit.exits import DataError

MOST_PIXELS = 1 << 26
"""A map of this size is made for each finding: some GB together."""


def read(path: Path, channels: int = 1) -> Image.Image:
    """Return the upright picture, in grey (1 channel) or RGB (3), which a grey one then has, too.

    Raises:
        DataError: it cannot be read; the message names the file.
    """
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} cannot be read: it is no file")
        content = path.read_bytes()
        if dicom.is_dicom(content):
            picture = dicom.picture(content)
        else:
            picture = picturefile.picture(content)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is a DICOM file that cannot be read: {error}") from error
    except BadImage as error:
        raise DataError(f"{path} {error}") from error
    if picture.width * picture.height > MOST_PIXELS:
        raise DataError(f"{path} has {picture.width}x{picture.height} pixels: {MOST_PIXELS:,} at"
                        " most can be looked at")
    return picturefile.in_channels(picture, channels)
