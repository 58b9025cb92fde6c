"""One rank of the self-test: Horovod and MPI agree on sums, and gradients are averaged."""

# ruff: noqa: S101 - a self-test asserts
import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import keras
import tensorflow as tf


def check_collectives() -> None:
    """All-reduce, all-gather and broadcast give what every rank can compute by itself."""
    rank, size = hvd.rank(), hvd.size()
    assert size == 2, f"started as {size} ranks instead of 2"
    total = hvd.allreduce(tf.fill([1000], float(rank + 1)), op=hvd.Sum)
    assert (total.numpy() == 3.0).all(), total[0]
    assert hvd.allgather(tf.constant([rank])).numpy().tolist() == [0, 1]
    assert hvd.broadcast(tf.constant(rank + 5), root_rank=1).numpy() == 6


def check_keras2() -> None:
    """`tf.keras` is Keras 2: `fit` with the distributed optimizer uses the mean gradient."""
    model = tf.keras.Sequential([
        tf.keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", input_shape=(1,))
    ])
    optimizer = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(1.0))
    model.compile(optimizer, loss=lambda _, output: output)
    value = tf.constant([[float(hvd.rank() + 1)]])  # gradients 1 and 2, mean 1.5
    model.fit(value, value, verbose=0, callbacks=[
        hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd_keras.callbacks.MetricAverageCallback(),
    ])
    weight = model.get_weights()[0].item()
    assert weight == -1.5, f"Keras 2: one step of the mean gradient gives -1.5, here {weight}"


def check_keras3() -> None:
    """Keras 3 with an own training step: the distributed tape gives the mean gradient.

    The distributed optimizer, which would average nothing there, refuses.
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
    weight = layer.get_weights()[0].item()
    assert weight == -1.5, f"Keras 3: one step of the mean gradient gives -1.5, here {weight}"


def check_mpi() -> None:
    """mpi4py finds the same Open MPI that Horovod was built with."""
    from mpi4py import MPI

    assert MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1) == 3


if __name__ == "__main__":
    hvd.init()
    check_collectives()
    check_keras2()
    check_keras3()
    if hvd.mpi_enabled():
        check_mpi()
    hvd.shutdown()
