"""Tests of checkpoints of TensorFlow: variables of every kind are restored bit by bit."""

from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainkit import statefile
from trainkit.tensorflow.parts import Variables, digest, plain

KINDS = ["float32", "float16", "bfloat16", "float64", "int64", "bool"]


@pytest.mark.parametrize("kind", KINDS)
def test_values_come_back_bit_by_bit(kind: str, tmp_path: Path) -> None:
    values = tf.cast(tf.constant([0.1, -3.0, 1e4]), kind)
    with (tmp_path / "state").open("wb") as file:
        statefile.write(Variables([tf.Variable(values)]).state_dict(), file)
    other = tf.Variable(tf.zeros_like(values))
    Variables([other]).load_state_dict(statefile.read(tmp_path / "state"))
    assert other.numpy().tobytes() == values.numpy().tobytes()
    assert digest([other]) == digest([tf.Variable(values)])


def test_a_state_is_a_copy() -> None:
    variable = tf.Variable([1.0])
    kept = Variables([variable]).state_dict()
    variable.assign([2.0])
    assert kept["0"].tolist() == [1.0]


def test_a_generator_goes_on_with_the_same_numbers() -> None:
    generator = tf.random.Generator.from_seed(3)
    generator.normal([5])
    part = Variables([generator.state])
    kept = part.state_dict()
    first = generator.normal([4]).numpy().tolist()
    part.load_state_dict(kept)
    assert generator.normal([4]).numpy().tolist() == first


def test_a_network_of_keras_and_its_optimizer_go_on_alike() -> None:
    def build() -> tuple[keras.Model, keras.optimizers.Optimizer]:
        inputs = keras.Input((3,))
        hidden = keras.layers.Dropout(0.5)(keras.layers.Dense(4)(inputs))
        model = keras.Model(inputs, keras.layers.BatchNormalization()(hidden))
        optimizer = keras.optimizers.Adam(0.1)
        optimizer.build(model.trainable_variables)
        return model, optimizer

    def step(model: keras.Model, optimizer: keras.optimizers.Optimizer) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones((8, 3)), training=True) ** 2)
        variables = model.trainable_variables
        optimizer.apply(tape.gradient(loss, [plain(v) for v in variables]), variables)

    (model, optimizer), (other, its) = build(), build()
    step(model, optimizer)
    for own, new in ((model, other), (optimizer, its)):
        Variables(new.variables).load_state_dict(Variables(own.variables).state_dict())
    step(model, optimizer)
    step(other, its)
    assert digest(other.variables) == digest(model.variables)
    assert digest(its.variables) == digest(optimizer.variables)


@pytest.mark.parametrize(("state", "said"), [
    ({}, "has no 0"),
    ({"0": np.zeros(2, np.float32), "1": np.zeros(2)}, "unknown here, 1"),
    ({"0": np.zeros(3, np.float32)}, r"another shape of 0 \(3, here 2\)"),
    ({"0": np.zeros(2, np.float16)}, "is float32, and float16 in the checkpoint"),
    ({"0": statefile.Foreign(np.zeros(2, np.uint16), "float12")}, "values of type float12"),
])
def test_values_of_another_network_are_refused(state: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Variables([tf.Variable([1.0, 2.0])]).load_state_dict(state)


def test_a_digest_tells_networks_apart() -> None:
    last = tf.Variable([1.0])
    assert digest([tf.Variable([1.0]), last]) != digest([tf.Variable([1.0 + 1e-6]), last])
