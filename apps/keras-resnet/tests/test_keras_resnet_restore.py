"""Tests of the network that is restored from a checkpoint: its weights and its precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from keras_resnet import network, restore
from trainkit import outputs
from trainkit.exits import DataError
from trainkit.tensorflow.parts import Variables
from trainkit.testing.refusals import refused

ABOUT = {"model": "Small", "size": 32, "classes": ["one", "two"]}


def opened(monkeypatch: pytest.MonkeyPatch, **about: Any) -> tuple[network.Classifier, Any]:
    """Return the network that is restored from a made-up checkpoint, and the saved network.

    The arguments `about` replace entries of the description that the checkpoint contains.
    """
    trained = network.network("Small", 32, 2)
    state = {"step": 3, "about": ABOUT | about, "parts": {
        "weights": Variables(trained.trainable_variables).state_dict(),
        "statistics": Variables(trained.non_trainable_variables).state_dict(),
    }}
    monkeypatch.setattr(outputs, "load_trained", lambda *_: state)
    return restore.open_network(Path("run"), None).model, trained


@pytest.mark.usefixtures("own_precision")
@pytest.mark.parametrize(("about", "kind"), [
    ({"precision": "bf16"}, "bfloat16"), ({"precision": "fp32"}, "float32"),
    ({}, "float32"),  # a checkpoint of an earlier version
])
def test_a_network_has_the_weights_and_the_precision_of_its_training(
    about: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.set_precision("fp32" if kind == "bfloat16" else "bf16")
    found, trained = opened(monkeypatch, **about)
    assert {one.compute_dtype for one in found.layers if one.weights} == {kind, "float32"}
    for one, other in zip(found.variables, trained.variables, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("about", [{"precision": "fp8"}, {"model": "Large"}])
def test_the_checkpoint_of_another_app_is_refused(
    about: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(DataError, "checkpoint-mismatch"):
        opened(monkeypatch, **about)
