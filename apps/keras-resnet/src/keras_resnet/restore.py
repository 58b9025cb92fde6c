"""Restore a trained network from a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keras_resnet import network
from keras_resnet.network import SMALL, Classifier
from trainkit import outputs
from trainkit.exits import DataError
from trainkit.tensorflow.parts import Variables


@dataclass(frozen=True)
class Restored:
    """A network in the state in which a checkpoint was written.

    Attributes:
        model: the network.
        classes: names of the classes.
        size: side of the images, in pixels.
        step: number of updates before the checkpoint.
    """

    model: Classifier
    classes: tuple[str, ...]
    size: int
    step: int


def open_network(out: Path | None, file: Path | None) -> Restored:
    """Return the network of the checkpoint `file`, or of the newest checkpoint of the run `out`.

    The network computes in the precision of the training.

    Raises:
        DataError: the run has no checkpoint, or the checkpoint belongs to another app.
    """
    state = outputs.load_trained(out, file)
    about: dict[str, Any] = state.get("about", {})
    precision = about.get("precision", "fp32")
    if (
        about.get("model") not in {SMALL, *network.names()} or "classes" not in about
        or precision not in network.POLICIES
    ):
        raise DataError("the checkpoint is of no network of this app", code="checkpoint-mismatch")
    classes = tuple(about["classes"])
    network.set_precision(precision)
    model = network.network(about["model"], about["size"], len(classes))
    try:
        Variables(model.trainable_variables).load_state_dict(state["parts"]["weights"])
        Variables(model.non_trainable_variables).load_state_dict(state["parts"]["statistics"])
    except (KeyError, ValueError) as error:
        raise DataError(
            f"the checkpoint does not fit its own description: {error}", code="checkpoint-damaged"
        ) from error
    return Restored(model, classes, about["size"], state["step"])
