"""Tests of the networks: backbones, heads, weight files, and training by Keras's `fit`.

The tests of the backbones check the normalization of their input, and the outputs of MobileNetV2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras.src.applications import densenet, resnet
from test_chexnet_network import keras_file, torch_file

from chexnet import fit, network, torchfile, weights
from chexnet.inputs import Batch
from chexnet.network import Network
from chexnet.settings import FitSettings, PretrainSettings, TrainSettings
from trainkit.data.order import Plan
from trainkit.ranks import Ranks
from trainkit.tensorflow.strategy import TensorFlowStrategy

RED_GREEN_BLUE = np.array([200.0, 100, 50])
TORCH = (RED_GREEN_BLUE / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
CAFFE = [50 - 103.939, 100 - 116.779, 200 - 123.68]  # blue, green, red
GIVEN = {"densenet121": TORCH, "small": TORCH, "resnet50": CAFFE, "vgg16": CAFFE}
"""Network -> the normalized test colour that its first layer must get. MobileNetV2 has a test of
its own."""


@pytest.mark.parametrize("name", GIVEN)
def test_a_body_is_given_the_colours_that_its_weights_were_trained_with(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layer gets colours as from Keras's `preprocess_input`, mode `torch` or `caffe`.

    Only the first layers are built.
    """
    for module, made in ((densenet, "dense_block"), (densenet, "transition_block"),
                         (resnet, "stack_residual_blocks_v1")):
        monkeypatch.setattr(module, made, lambda found, *_, **__: found)
    images = keras.Input((32, 32, 3))
    model = keras.Model(images, network.BODIES[name](images))
    kinds = (keras.layers.Conv2D, keras.layers.ZeroPadding2D)
    first = next(layer for layer in model.layers if isinstance(layer, kinds))
    given = keras.Model(images, first.input)(np.full((1, 32, 32, 3), RED_GREEN_BLUE, np.float32))
    np.testing.assert_allclose(given[0, 3, 4], GIVEN[name], rtol=1e-5)


def test_a_network_computes_in_the_precision_that_is_asked_for() -> None:
    image = np.zeros((1, 32, 32, 3), np.uint8)
    try:
        for precision, name in (("bf16", "bfloat16"), ("fp16", "float16"), ("fp32", "float32")):
            found = network.build("small", 32, 3, precision)
            assert found.features(image, training=False).dtype.name == name
    finally:
        network.build("small", 32, 3, "fp32")


def test_the_head_of_vgg_has_two_layers_of_4096_before_the_findings() -> None:
    found = network.build("vgg16", 32, 3, "fp32").head
    draw = np.random.default_rng(0)
    features = draw.random((2, 1, 1, 512)).astype(np.float32)
    expected = features.reshape(2, 512).astype(float)
    for name in ("fc1", "fc2", "findings"):
        kernel, bias = found.get_layer(name).variables
        assert kernel.shape[-1] == (3 if name == "findings" else 4096)
        bias.assign(draw.normal(0, 0.1, bias.shape).astype(np.float32))
        expected = expected @ kernel.numpy() + bias.numpy()
        expected = expected if name == "findings" else np.maximum(expected, 0)
    np.testing.assert_allclose(found(features), expected, rtol=1e-3, atol=1e-4)


TABLE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
         (6, 160, 3, 2), (6, 320, 1, 1))
"""MobileNetV2, arXiv:1801.04381, table 2: expansion factor, channels, repetitions, stride."""


class Mobile:
    """torchvision's MobileNetV2 in double precision, with random weights in its own layout."""

    def __init__(self) -> None:
        self._draw = np.random.default_rng(1)
        self.tensors: dict[str, np.ndarray] = {}

    def features(self, found: tf.Tensor) -> tf.Tensor:
        """Return the features (n, h, w, 1280) of normalized images (n, H, W, 3)."""
        found = self._filtered(found, "features.0", (32, 3, 3, 3), 2)
        number, wide = 1, 32
        for expansion, narrow, count, first in TABLE:
            for at in range(count):
                given, name, part = found, f"features.{number}.conv", 0
                if expansion > 1:
                    found = self._filtered(found, f"{name}.0", (expansion * wide, wide, 1, 1), 1)
                    part = 1
                shape = (expansion * wide, 1, 3, 3)
                found = self._filtered(found, f"{name}.{part}", shape, 1 if at else first)
                found = self._convolved(found, f"{name}.{part + 1}",
                                        (narrow, expansion * wide, 1, 1), 1)
                found = self._normalized(found, f"{name}.{part + 2}", narrow)
                found = given + found if at else found
                number, wide = number + 1, narrow
        return self._filtered(found, "features.18", (1280, 320, 1, 1), 1)

    def _filtered(self, found: tf.Tensor, name: str, shape: Any, stride: int) -> tf.Tensor:
        found = self._convolved(found, f"{name}.0", shape, stride)
        return tf.clip_by_value(self._normalized(found, f"{name}.1", shape[0]), 0, 6)

    def _convolved(self, found: tf.Tensor, name: str, shape: Any, stride: int) -> tf.Tensor:
        largest = float(np.sqrt(3 / np.prod(shape[1:])))
        kernel = self._new(f"{name}.weight", shape, -largest, largest)
        edge = shape[-1] // 2
        found = tf.pad(found, [[0, 0], [edge, edge], [edge, edge], [0, 0]])
        steps, kernel = [1, stride, stride, 1], kernel.astype(float)
        if shape[1] == 1:
            kernel = np.moveaxis(kernel[:, 0], 0, -1)[..., None]
            return tf.nn.depthwise_conv2d(found, kernel, steps, "VALID")
        return tf.nn.conv2d(found, np.einsum("oihw->hwio", kernel), steps, "VALID")

    def _normalized(self, found: tf.Tensor, name: str, width: int) -> tf.Tensor:
        scale = self._new(f"{name}.weight", (width,), 0.5, 1.5)
        shift = self._new(f"{name}.bias", (width,), -0.5, 1.0)
        mean = self._new(f"{name}.running_mean", (width,), -0.2, 0.2)
        # In the first layer some are so small that epsilon counts.
        low, high = (1e-5, 1e-2) if name == "features.0.1" else (0.5, 1.5)
        spread = self._new(f"{name}.running_var", (width,), low, high)
        self.tensors[f"{name}.num_batches_tracked"] = np.array(7)
        return (found - mean) / np.sqrt(spread.astype(float) + 1e-5) * scale + shift

    def _new(self, name: str, shape: Any, low: float, high: float) -> np.ndarray:
        self.tensors[name] = self._draw.uniform(low, high, shape).astype(np.float32)
        return self.tensors[name]


def test_mobilenet_computes_what_torchvision_does_with_its_weights(tmp_path: Path) -> None:
    images = np.random.default_rng(2).integers(0, 256, (1, 64, 64, 3)).astype(np.uint8)
    theirs = Mobile()
    expected = theirs.features(
        tf.constant((images / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225])
    ).numpy()
    theirs.tensors["classifier.1.weight"] = np.zeros((10, 1280), np.float32)
    found = network.build("mobilenetv2", 64, 2, "fp32")
    weights.load(found, torch_file(tmp_path / "mobilenet.pth", theirs.tensors))
    ours = found.features(images, training=False).numpy()
    assert (expected == 6).any()
    assert ((expected > 0) & (expected < 6)).mean() > 0.1
    assert np.abs(ours - expected).mean() < 1e-3
    normal = found.body.get_layer("features.0.1")
    before = normal.moving_mean.numpy()
    convolved = keras.Model(found.body.input, normal.input)(images.astype(np.float32))
    found.features(images, training=True)
    mean = convolved.numpy().astype(float).mean((0, 1, 2))
    np.testing.assert_allclose(normal.moving_mean.numpy(), 0.9 * before + 0.1 * mean, rtol=1e-3,
                               atol=1e-5)


def test_tensors_are_parts_of_their_storages_in_the_order_of_the_keys(tmp_path: Path) -> None:
    """Each tensor read from a PyTorch file has the values that were written.

    Each tensor has its own storage, or all share one. PyTorch sorts the storages by their keys.
    """
    tensors = {f"t{at}": np.arange(3 * at, 3 * at + 6 + at, dtype=np.float32) for at in range(12)}
    found = torchfile.read(torch_file(tmp_path / "a.pth", tensors))
    for name, value in tensors.items():
        np.testing.assert_array_equal(found[name], value)
    parts = torchfile.read(torch_file(tmp_path / "b.pth", tensors, together=True))
    for name, value in tensors.items():
        np.testing.assert_array_equal(parts[name], value)


def test_of_the_head_all_but_the_classifier_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keras's file of pretrained weights sets all layers of the head except the classifier.

    For example, the file has the two layers of 4,096 features in the head of VGG-16.
    """
    monkeypatch.setitem(weights.KERAS, "small", {})
    body = network.build("small", 32, 2, "fp32").body
    given = keras.Input((4, 4, 32))
    hidden = keras.layers.Dense(3, name="fc1")(keras.layers.GlobalAveragePooling2D()(given))
    head = keras.Model(given, keras.layers.Dense(2, name="findings")(hidden))
    layers = {layer.name: [one.numpy() + 1 for one in layer.variables]
              for layer in body.layers if layer.variables}
    own = [np.arange(96, dtype=np.float32).reshape(32, 3), np.ones(3, np.float32)]
    other = [np.full((3, 2), 9, np.float32), np.full(2, 9, np.float32)]
    before = [one.numpy() for one in head.get_layer("findings").variables]
    file = keras_file(tmp_path / "own.h5", layers | {"fc1": own, "findings": other})
    weights.load(Network("small", body, head), file, warn=str)
    for name, expected in {"fc1": own, "findings": before}.items():
        for one, value in zip(head.get_layer(name).variables, expected, strict=True):
            np.testing.assert_array_equal(one.numpy(), value)
    for layer in body.layers:
        for one, value in zip(layer.variables, layers.get(layer.name, []), strict=True):
            np.testing.assert_array_equal(one.numpy(), value)


class Log:
    """A metrics log that keeps the logged values in memory."""

    def __init__(self) -> None:
        self.told: dict[str, list[Any]] = {}

    def event(self, key: str, value: Any, **where: Any) -> None:
        self.told.setdefault(key, []).append(value)


def averaging(**options: Any) -> keras.Model:
    """Return a body without weights whose features are the mean colours of the images."""
    assert options == {"include_top": False, "weights": None, "input_shape": (32, 32, 3),
                       "pooling": "avg"}
    images = keras.Input((32, 32, 3))
    return keras.Model(images, keras.layers.GlobalAveragePooling2D()(images))


def stand_in() -> SimpleNamespace:
    """Return a substitute for Keras whose networks only average the colours of the images.

    Its DenseNet121 and ResNet50 are the function `averaging`; its other attributes are those
    of Keras.
    """
    names = ("mixed_precision", "layers", "Input", "Model", "optimizers")
    applications = SimpleNamespace(DenseNet121=averaging, ResNet50=averaging)
    return SimpleNamespace(applications=applications,
                           **{one: getattr(keras, one) for one in names})


@pytest.mark.parametrize("channels", ["1", "3"])
@pytest.mark.parametrize("name", ["densenet121", "resnet50"])
def test_keras_trains_on_the_same_colours_by_the_same_loss(name: str, channels: str) -> None:
    labels = np.array([[1, 0], [1, 0], [0, 0], [1, 1]], np.float32)
    data = SimpleNamespace(findings=("a", "b"), train=SimpleNamespace(vectors=lambda: labels))
    settings = FitSettings(model=name, size=32, channels=channels, base_lr=0.02)
    model, _ = fit.compile_model(stand_in(), settings, data, TensorFlowStrategy())
    pixels = np.full((2, 32, 32, 3), RED_GREEN_BLUE) if channels == "3" else np.full(
        (2, 32, 32, 1), 90.0)
    colours = RED_GREEN_BLUE if channels == "3" else np.full(3, 90.0)
    given = (colours / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225] if (
        name == "densenet121") else colours[::-1] - [103.939, 116.779, 123.68]
    kernel, bias = (one.numpy() for one in model.layers[-1].variables)
    np.testing.assert_allclose(model(pixels.astype(np.float32))[0], given @ kernel + bias,
                               rtol=1e-4, atol=1e-3)
    logits = np.array([[0.5, -1], [2, 0.1], [-1, 0.4], [0, 3]])
    p = 1 / (1 + np.exp(-logits))
    expected = -([0.25, 0.75] * labels * np.log(p) + [0.75, 0.25] * (1 - labels) * np.log(1 - p))
    found = model.loss(tf.constant(labels), tf.constant(logits, tf.float32))
    np.testing.assert_allclose(np.mean(found), expected.mean(), rtol=1e-5)
    assert isinstance(model.optimizer, keras.optimizers.Adam)
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(0.02)


def test_ranks_of_keras_begin_alike_and_average(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiled model has Horovod's optimizer, and the two callbacks of Horovod are returned.

    One callback broadcasts the weights, the other averages the metrics. The test replaces Horovod.
    """
    def distributed(own: Any) -> Any:
        wrapped = keras.optimizers.Adam(float(own.learning_rate.numpy()))
        wrapped.of_all_ranks = True
        return wrapped

    calls = SimpleNamespace(
        BroadcastGlobalVariablesCallback=lambda rank: ("weights of", rank),
        MetricAverageCallback=lambda: "metrics",
    )
    horovod = SimpleNamespace(DistributedOptimizer=distributed, callbacks=calls)
    for name in ("horovod", "horovod.tensorflow"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "horovod.tensorflow.keras", horovod)
    data = SimpleNamespace(findings=("a",), train=SimpleNamespace(vectors=lambda: np.eye(1)))
    settings = FitSettings(model="resnet50", size=32, base_lr=0.03)
    second = Second(Ranks("mpirun", 1, 2, 1, 2))
    model, callbacks = fit.compile_model(stand_in(), settings, data, second)
    assert model.optimizer.of_all_ranks
    assert float(model.optimizer.learning_rate.numpy()) == pytest.approx(0.03)
    assert callbacks == [("weights of", 0), "metrics"]


class Second(TensorFlowStrategy):
    """A stand-in for one of two ranks; the other rank contributes 3 to each sum over the ranks."""

    def sum(self, values: Any) -> list[float]:
        return [one + 3.0 for one in values]


def test_keras_tells_the_loss_of_the_steps_since_the_last_time_and_all_images() -> None:
    """The log contains the mean loss since the last log line, and the images per second.

    Keras itself reports the mean loss of the epoch so far. The last batch of an epoch has one
    image.
    """
    plan, log = Plan(21, 10, 0, training=True), Log()
    data = SimpleNamespace(train=SimpleNamespace(plan=plan))
    settings = FitSettings(epochs=2, log_every=2)
    told = fit.FitLog(settings, data, Second(Ranks("mpirun", 1, 2, 1, 2)), log)  # type: ignore[arg-type]
    callback = told.callback(keras)
    clock = iter(np.arange(0.0, 1000, 0.5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
        for epoch, losses in enumerate(([1.0, 3.0, 5.0], [7.0, 1.0, 2.0])):
            callback.on_epoch_begin(epoch, {})
            for at in range(3):
                callback.on_train_batch_end(at, {"loss": float(np.mean(losses[: at + 1]))})
            callback.on_epoch_end(epoch, {})
    assert log.told["train_loss"] == pytest.approx([(one + 3) / 2 for one in (2, 5, 4, 2)])
    images = [20, 1, 20, 1]
    assert log.told["throughput"] == pytest.approx([one / 0.5 for one in images])


def test_keras_takes_the_batches_of_each_epoch() -> None:
    def epoch(number: int) -> Iterator[Batch]:
        for at in range(3):
            value = 10 * number + at
            yield Batch(tf.fill((2, 32, 32, 1), tf.constant(value, tf.uint8)),
                        tf.fill((2, 2), float(value)), 2)

    data = SimpleNamespace(findings=("a", "b"), train=SimpleNamespace(epoch=epoch))
    settings = FitSettings(epochs=2, size=32, channels="1")
    found = [(float(images[1, 3, 4, 0]), float(labels[0, 1]))
             for images, labels in fit._batches(data, settings, 2)]
    assert found == [(0, 0), (1, 1), (10, 10), (11, 11)]
    read = fit._train_settings(
        FitSettings(size=48, channels="1", batch_size_per_rank=3, augment=False, seed=5)
    )
    assert (read.size, read.channels, read.batch_size_per_rank, read.augment, read.seed) == (
        48, "1", 3, False, 5)


def test_the_defaults_are_those_of_the_publications() -> None:
    """The default options are those of CheXNet, sections 2.1 and 3, and Goyal et al., section 5.1.

    The warm-up of the pre-training has five epochs with a global batch of 8,192.
    """
    own = TrainSettings()
    assert (own.model, own.size, own.batch_size_per_rank) == ("densenet121", 224, 16)
    assert (own.optimizer, own.base_lr, own.drop, own.weighted) == ("adam", 0.001, 0.1, True)
    assert (own.augment, own.crop, own.schedule, own.weight_decay) == (True, "whole", "constant", 0)
    assert (own.frozen_epochs, own.accumulation, own.statistics) == (0, 1, True)
    first = PretrainSettings()
    assert (first.epochs, first.optimizer, first.base_lr, first.base_batch) == (90, "sgd", 0.1, 256)
    assert (first.weight_decay, first.schedule, first.crop) == (1e-4, "steps", "random")
    assert first.warmup_images == 5 * 1281167 * 256 // 8192
