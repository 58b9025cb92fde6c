"""ResNet-50 through Keras's own `model.fit`: alone with Keras 3, or with Horovod's callback.

Horovod's `DistributedOptimizer` averages under Keras 2 only, which `--horovod` therefore takes, as
Horovod's examples do: scaled rate, broadcast of the first weights. Threads, batch, precision and
images are those of the app.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import tensorflow as tf

from sidebyside.spread import over_windows
from sidebyside.timing import print_rate

FINDINGS = 14
POLICIES = {"fp32": "float32", "bf16": "mixed_bfloat16"}


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description="Print the img/s of model.fit.")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=16, help="images per step and rank")
    parser.add_argument("--window", type=int, default=2, help="steps per window; the first warms")
    parser.add_argument("--windows", type=int, default=3, help="windows that count")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=POLICIES, default="fp32")
    parser.add_argument("--horovod", action="store_true", help="ranks of Horovod, with Keras 2")
    return parser.parse_args()


def windows(keras: Any, options: argparse.Namespace, ranks: int) -> Any:
    """Return a callback that keeps the rate of each window of steps."""

    class Windows(keras.callbacks.Callback):  # type: ignore[misc, name-defined]
        """Rates in img/s of all ranks."""

        def __init__(self) -> None:
            super().__init__()
            self.rates: list[float] = []
            self.begun = 0.0

        def on_train_begin(self, logs: Any = None) -> None:
            self.begun = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if (batch + 1) % options.window == 0:
                now = time.perf_counter()
                self.rates.append(options.window * options.batch * ranks / (now - self.begun))
                self.begun = now

    return Windows()


def main() -> None:
    """Train on one batch again and again."""
    options = arguments()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    hvd: Any = None
    if options.horovod:
        import horovod.tensorflow.keras as hvd
        import tf_keras as keras

        hvd.init()
    else:
        import keras
    ranks = hvd.size() if hvd else 1
    keras.mixed_precision.set_global_policy(POLICIES[options.precision])
    model = keras.applications.ResNet50(
        weights=None, input_shape=(options.size, options.size, 3), pooling="avg", include_top=False
    )
    logits = keras.layers.Dense(FINDINGS, dtype="float32")(model.output)
    model = keras.Model(model.input, logits)
    optimizer = keras.optimizers.Adam(0.001 * ranks)
    model.compile(hvd.DistributedOptimizer(optimizer) if hvd else optimizer,
                  keras.losses.BinaryCrossentropy(from_logits=True))
    images = tf.random.uniform((options.batch, options.size, options.size, 3))
    labels = tf.cast(tf.random.uniform((options.batch, FINDINGS)) < 0.5, tf.float32)
    steps = options.window * (1 + options.windows)
    told = windows(keras, options, ranks)
    callbacks = [told, *([hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if hvd else [])]
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat(steps)
    model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0, callbacks=callbacks)
    if hvd is None or hvd.rank() == 0:
        print_rate(over_windows(told.rates[1:]))


if __name__ == "__main__":
    main()
