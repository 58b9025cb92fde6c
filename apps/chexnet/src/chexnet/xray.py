"""Read an X-ray from a PNG, JPEG or DICOM file as an image of 8 bits."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from shards import dicom, picturefile
from shards.picturefacts import BadImage
from trainkit.exits import DataError

MAX_PIXELS = 1 << 26
"""Largest number of pixels of an image.

`predict` makes one map of evidence per finding in the size of the image; for an image of
this size, the maps take some GB of memory.
"""


def read(path: Path, channels: int = 1) -> Image.Image:
    """Return the upright image in `path`, in grey (1 channel) or RGB (3 channels).

    Raises:
        DataError: the file cannot be read; the message names it.
    """
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is not a file: give the path of one image",
                            code="file-not-plain")
        content = path.read_bytes()
        if dicom.is_dicom(content):
            picture = dicom.picture(content)
        else:
            picture = picturefile.picture(content)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    except ValueError as error:
        raise DataError(
            f"{path} is a DICOM file that cannot be read: {error}", code="image-undecodable"
        ) from error
    except BadImage as error:
        raise DataError(f"{path} {error}", code="image-undecodable") from error
    if picture.width * picture.height > MAX_PIXELS:
        raise DataError(f"{path} has {picture.width}x{picture.height} pixels: {MAX_PIXELS:,} at"
                        " most can be looked at", code="image-unsuitable")
    return picturefile.in_channels(picture, channels)
