"""Tests of the published networks on small images: training, prediction and export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from test_chexnet_contract import APP

from chexnet import network, predict, restore
from trainkit.testing import Program, reading

pytestmark = pytest.mark.slow

NETWORKS = ["densenet121", "resnet50", "vgg16"]


@pytest.mark.long
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_is_trained_looked_at_and_exported(
    name: str, findings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, form = tmp_path / "run", "onnx" if name == "vgg16" else "savedmodel"
    words = ("--model", name, "--max-steps", "1", "--frozen-epochs", "0", "--eval-every", "0",
             "--optimizer", "sgd", "--base-lr", "0.001", "--log-every", "1")
    assert Program(APP, findings).main(run, *words) == 0
    [(_, loss)] = reading.values(run, "train_loss")
    assert 0 < loss < 2
    model = restore.open_network(run, None)
    monkeypatch.setattr(restore, "open_network", lambda out, file: model)  # built once
    Image.fromarray(np.eye(48, dtype=np.uint8) * 255).save(tmp_path / "one.png")
    seen = predict.predict_image(model, tmp_path / "one.png")
    assert ((seen.probabilities >= 0) & (seen.probabilities <= 1)).all()
    assert seen.maps.shape == (2, 48, 48)
    to = tmp_path / "exported"
    capsys.readouterr()
    assert APP.main("export", "--out", run, "--to", to, "--format", form) == 0
    assert f"{name}, images (any number, 32, 32, 1)" in capsys.readouterr().out


def test_a_map_of_vgg_has_the_slopes_through_its_layers_of_4096() -> None:
    """The maps equal Grad-CAM in NumPy, with mean gradients through three dense layers."""
    tf.keras.utils.set_random_seed(0)
    built = network.build("vgg16", 64, 2, "fp32")
    model = restore.Restored(built, ("left", "right"), 64, 3, 1)
    pixels = tf.constant(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
    logits, maps = model.maps(pixels)
    features = built.features(pixels[None], training=False)[0].numpy().astype(float)
    (w1, b1), (w2, b2), (w3, b3) = (
        [one.numpy().astype(float) for one in built.head.get_layer(layer).variables]
        for layer in ("fc1", "fc2", network.CLASSIFIER)
    )
    first = features.reshape(-1) @ w1 + b1
    second = np.maximum(first, 0) @ w2 + b2
    np.testing.assert_allclose(logits, np.maximum(second, 0) @ w3 + b3, rtol=1e-3, atol=1e-5)
    for at in range(2):
        slope = (((w3[:, at] * (second > 0)) @ w2.T) * (first > 0)) @ w1.T
        channels = slope.reshape(features.shape).mean((0, 1))
        expected = np.maximum(features @ channels, 0)
        assert expected.shape == (2, 2)
        np.testing.assert_allclose(maps[at], expected, rtol=1e-2, atol=1e-2 * expected.max() + 1e-9)
    assert maps.numpy().max() > 0
