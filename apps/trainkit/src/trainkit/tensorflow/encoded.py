"""Prepare encoded images for `tf.data`, and find images that TensorFlow cannot decode."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import tensorflow as tf

from shards import picturefile
from shards.picturefacts import BadImage
from trainkit.exits import DataError


class Source(Protocol):
    """The interface of a collection of JPEG and PNG images, numbered from 0."""

    def __len__(self) -> int: ...

    def encoded(self, number: int) -> Any:
        """Return the bytes of the JPEG or PNG file of image `number`."""
        ...

    def describe(self, number: int) -> str:
        """Return the location of image `number` as text for an error message."""
        ...


def decodable(content: bytes) -> bytes:
    """Return an image file that TensorFlow decodes to the same pixels as other decoders.

    The image is converted if necessary: TensorFlow ignores EXIF, and cannot convert CMYK to grey.
    Pixels of 16 bits were converted when the data set was packed.

    Raises:
        BadImage: the file is not an image.
    """
    return content if picturefile.facts(content).plain else picturefile.plain(content)


def decode_error(source: Source, numbers: Iterable[int], channels: int) -> DataError | None:
    """Return the error of the first image in `numbers` that cannot be decoded.

    Args:
        source: the images.
        numbers: numbers of the images to decode.
        channels: number of channels to which images are decoded.

    Returns:
        The error, which names the image; None if all images can be decoded.
    """
    for number in map(int, numbers):
        damaged = f"{source.describe(number)}: no JPEG or PNG, or damaged"
        try:
            tf.io.decode_image(decodable(bytes(source.encoded(number))), channels)
        except tf.errors.OpError:
            return DataError(damaged, code="image-undecodable")
        except BadImage as bad:
            return DataError(f"{damaged}: it {bad}", code="image-undecodable")
        except DataError as error:
            return error
    return None
