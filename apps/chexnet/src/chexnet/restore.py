"""Restore a trained network from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from chexnet import network
from chexnet.network import Network
from trainkit import outputs
from trainkit.exits import DataError
from trainkit.tensorflow.parts import Variables


@dataclass(frozen=True)
class Restored:
    """A network with the weights of a checkpoint.

    Attributes:
        network: body and head.
        findings: names of the outputs.
        size: side of the images, in pixels.
        channels: number of channels of the images, 1 or 3.
        step: number of updates before the checkpoint.
        packed: width and height of the packed training images; None if they differed in size.
    """

    network: Network
    findings: tuple[str, ...]
    size: int
    channels: int
    step: int
    packed: tuple[int, int] | None = None

    def maps(self, image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the logits of an image, and for each finding a map of its evidence.

        A map is Grad-CAM (Selvaraju et al., arXiv:1610.02391, equations 1 and 2): the positive
        part of the sum of the features, each weighted by the mean gradient of the logit. With
        global average pooling, it equals the map of Zhou et al., arXiv:1512.04150, which the
        CheXNet paper shows.

        Args:
            image: values 0..255, (size, size, channels).

        Returns:
            Logits (findings,), and maps (findings, h, w) of values of at least 0.
        """
        features = tf.cast(self.network.features(image[None], training=False), tf.float32)
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(features)
            logits = self.network.head(features, training=False)[0]
            each = tf.unstack(logits)
        slopes = [tf.reduce_mean(tape.gradient(one, features), (1, 2)) for one in each]
        found = [tf.nn.relu(tf.reduce_sum(features[0] * slope[0], -1)) for slope in slopes]
        return logits, tf.stack(found)


def open_network(out: Path | None, file: Path | None) -> Restored:
    """Return the network of the checkpoint `file`, or of the newest checkpoint of the run `out`.

    Raises:
        DataError: the run has no checkpoint, or the checkpoint belongs to another app.
    """
    state = outputs.load_trained(out, file)
    about: dict[str, Any] = state.get("about", {})
    if about.get("model") not in network.BODIES:
        raise DataError("the checkpoint is of no network of this app", code="checkpoint-mismatch")
    found = network.build(about["model"], about["size"], len(about["findings"]), "fp32")
    try:
        Variables(found.body.variables).load_state_dict(state["parts"]["body"])
        Variables(found.head.variables).load_state_dict(state["parts"]["head"])
    except (KeyError, ValueError) as error:
        raise DataError(
            f"the checkpoint does not fit its own description: {error}", code="checkpoint-damaged"
        ) from error
    packed = about.get("packed")
    return Restored(found, tuple(about["findings"]), about["size"], about["channels"],
                    state["step"], packed and (packed[0], packed[1]))
