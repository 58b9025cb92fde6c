"""The command `predict`: the most likely classes of images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from keras_resnet import images, restore
from keras_resnet.settings import PredictSettings
from shards.picturefacts import BadImage
from trainkit.exits import DataError
from trainkit.tensorflow.encoded import decodable
from trainkit.tensorflow.start import start


def main(settings: PredictSettings) -> None:
    """Print the most likely classes of each image.

    Raises:
        DataError: an image or the checkpoint cannot be read.
    """
    assert settings.data is not None  # noqa: S101 - `settings.check` refuses None
    ranks = start("single", device=settings.device)
    with tf.device(ranks.device):
        found = restore.open_network(settings.out, settings.checkpoint)
        for path in settings.data:
            image = images.resized(read(path), found.size)
            values = tf.nn.softmax(found.model(image[None], training=False)[0]).numpy()
            best = [(found.classes[n], float(values[n])) for n in np.argsort(-values)]
            best = best[: settings.top]
            if settings.json:
                print(json.dumps({"file": str(path), "classes": dict(best)}))
            else:
                print(f"{path}  " + "  ".join(f"{name} {value:.1%}" for name, value in best))


def read(path: Path) -> tf.Tensor:
    """Return the pixels of an image file, (H, W, 3), values 0..255.

    Raises:
        DataError: the file is missing, or is not an image.
    """
    try:
        content = decodable(path.read_bytes())
        return tf.io.decode_image(content, 3, expand_animations=False)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", code="data-missing") from error
    except (BadImage, tf.errors.OpError) as error:
        raise DataError(f"{path}: no JPEG or PNG, or damaged", code="image-undecodable") from error
