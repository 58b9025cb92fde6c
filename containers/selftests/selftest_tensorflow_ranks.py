"""One rank of the self-test: check collectives of Horovod and MPI, and the mean of gradients.

Arguments: the number of ranks that were started, and the device of the tensors (cpu, gpu).
"""

# ruff: noqa: S101 - a self-test uses assert
import sys

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import keras
import tensorflow as tf
from selftest_common import check_mpi


def choose_device(kind: str) -> None:
    """Make only this rank's GPU visible to TensorFlow, or no GPU if `kind` is CPU."""
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[hvd.local_rank()] if kind == "GPU" else [], "GPU")


def check_collectives(size: int, kind: str) -> None:
    """Check all-reduce, all-gather and broadcast of Horovod against results that are known."""
    rank = hvd.rank()
    assert hvd.size() == size, f"started as {hvd.size()} ranks instead of {size}"
    with tf.device(f"{kind}:0"):
        total = hvd.allreduce(tf.fill([1000], float(rank + 1)), op=hvd.Sum)
    assert f"/device:{kind}:0" in total.device, total.device
    assert (total.numpy() == size * (size + 1) / 2).all(), total[0]
    assert hvd.allgather(tf.constant([rank])).numpy().tolist() == list(range(size))
    assert hvd.broadcast(tf.constant(rank + 5), root_rank=size - 1).numpy() == size + 4


def check_keras2(size: int) -> None:
    """Check that `fit` of Keras 2 with the distributed optimizer uses the mean gradient."""
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(1,))
    ])
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    model.compile(optimizer, loss=lambda _, output: output)
    value = tf.constant([[float(hvd.rank() + 1)]])  # gradients 1, 2, …
    model.fit(value, value, verbose=0, callbacks=[
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_keras.callbacks.MetricAverageCallback(),
    ])
    check_step("Keras 2", model.get_weights()[0].item(), size)


def check_keras3(size: int) -> None:
    """Check that the distributed gradient tape returns the mean gradient with Keras 3.

    The distributed optimizer would average nothing with Keras 3, and must raise a TypeError.
    """
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    layer.build((1, 1))
    optimizer = keras.optimizers.SGD(1.0)
    try:
        hvd_keras.DistributedOptimizer(optimizer)
    except TypeError:
        pass
    else:
        raise AssertionError("DistributedOptimizer took an optimizer of Keras 3")
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(tf.constant([[float(hvd.rank() + 1)]])))
    tape = hvd.DistributedGradientTape(tape)
    variables = layer.trainable_variables
    optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)
    check_step("Keras 3", layer.get_weights()[0].item(), size)


def check_step(what: str, weight: float, size: int) -> None:
    """Check that `weight` is 0 minus the mean of the gradients 1, 2, …, `size`."""
    mean = (size + 1) / 2
    assert weight == -mean, f"{what}: the mean gradient is {mean}, the weight became {weight}"


if __name__ == "__main__":
    hvd.init()
    ranks, device = int(sys.argv[1]), sys.argv[2].upper()
    choose_device(device)
    check_collectives(ranks, device)
    check_keras2(ranks)
    check_keras3(ranks)
    if hvd.mpi_enabled():
        check_mpi(ranks)
    hvd.shutdown()
