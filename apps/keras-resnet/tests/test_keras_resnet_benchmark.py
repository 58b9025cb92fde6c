"""Tests of `benchmark`: counted operations, inference and training step, and wrong arguments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tf_keras as keras

from keras_resnet import benchmark, network, operations
from keras_resnet.__main__ import main
from keras_resnet.settings import ZOO, BenchmarkSettings
from trainkit.exits import ArgumentError
from trainkit.testing.refusals import assert_reported, refused
from trainkit.testing.zoo import check_benchmark


@pytest.fixture
def framework() -> benchmark.TensorFlow:
    settings = BenchmarkSettings(batch_size=2, size=32, threads=1, device="cpu", precision="fp32")
    return benchmark.open_framework(settings)


def operations_of(model: keras.Model) -> int:
    function = tf.function(lambda images: model(images, training=False))
    shape = (1, *model.input_shape[1:])
    return operations.count(function.get_concrete_function(tf.TensorSpec(shape)))


def test_the_operations_of_a_network_are_those_of_its_layers() -> None:
    images = keras.Input((32, 32, 3))
    values = keras.layers.Conv2D(8, 5, 2, "same")(images)  # (16, 16, 8), sums of 5 x 5 x 3
    values = keras.layers.DepthwiseConv2D(3, depth_multiplier=2)(values)  # (14, 14, 16), of 3 x 3
    values = keras.layers.GlobalAveragePooling2D()(keras.layers.BatchNormalization()(values))
    values = keras.layers.Dense(10)(values)  # 10 sums of 16
    products = 16 * 16 * 8 * 75 + 14 * 14 * 16 * 9 + 10 * 16
    assert operations_of(keras.Model(images, values)) == 2 * products


def test_a_product_of_transposed_matrices_is_counted() -> None:
    function = tf.function(lambda a, b: tf.matmul(a, b, transpose_a=True))
    specs = tf.TensorSpec((7, 2)), tf.TensorSpec((7, 3))
    assert operations.count(function.get_concrete_function(*specs)) == 2 * 2 * 3 * 7


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size", "parameters", "products"), [
    ("ResNet50", 224, 25.6e6, 3.8e9),  # arXiv:1512.03385, table 1
    ("VGG19", 224, 144e6, 19.6e9),  # arXiv:1409.1556, table 2; arXiv:1512.03385, section 3.3
    ("MobileNetV2", 224, 3.4e6, 300e6),  # arXiv:1801.04381, table 4
    ("NASNetMobile", 224, 5.3e6, 564e6),  # arXiv:1707.07012, table 2
    ("InceptionV3", 299, 23.8e6, 5.72e9),  # the same, table 2
])
def test_parameters_and_multiplications_are_as_published(
    name: str, size: int, parameters: float, products: float
) -> None:
    model = benchmark.build(name, None)
    assert model.input_shape == (None, size, size, 3)
    assert model.output_shape == (None, 1000)
    assert model.count_params() == pytest.approx(parameters, rel=0.045)
    assert operations_of(model) / 2 == pytest.approx(products, rel=0.025)


def test_a_training_step_changes_the_weights_and_a_forward_step_does_not(
    framework: benchmark.TensorFlow, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = benchmark.build("Small", 32)
    monkeypatch.setattr(benchmark, "build", lambda *_: model)
    found = framework.network("Small")
    assert (found.size, found.parameters) == (32, 39_088)
    before = model.get_weights()
    found.forward()
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    found.train()
    changed = [np.any(a != b) for a, b in zip(before, model.get_weights(), strict=True)]
    assert all(changed)


@pytest.mark.slow  # TensorFlow waits for ten seconds before it gives up
def test_too_little_memory_is_recognized(framework: benchmark.TensorFlow) -> None:
    with pytest.raises(framework.FAILURES) as caught:
        tf.zeros((1 << 20, 1 << 25))
    assert framework.is_out_of_memory(caught.value)
    with pytest.raises(framework.FAILURES) as caught:
        tf.reshape(tf.zeros(3), (2, 2))
    assert not framework.is_out_of_memory(caught.value)


def test_wrong_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["benchmark", "--models", "Small", "ResNet51"]) == 2
    assert_reported(capsys.readouterr().err, "argument-invalid", "ResNet51", "ResNet50")
    assert main(["benchmark", "--size", "31"]) == 2
    assert_reported(capsys.readouterr().err, "argument-invalid", "31", "32")
    with refused(ArgumentError, "argument-invalid", "--size 32", "InceptionV3"):
        benchmark.build("InceptionV3", 32)


def test_the_networks_of_the_default_exist() -> None:
    for name in ZOO:
        network.check_name(name)


@pytest.mark.slow
def test_networks_are_measured_one_after_the_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_benchmark(main, ("Small", "InceptionV3"), tmp_path, capfd)
