"""Measure an upper bound of the training rate in TensorFlow, as `matmul` does in PyTorch."""

from __future__ import annotations

import argparse
import time

import tensorflow as tf

from sidebyside.timing import print_rate

SIZES = (512, 1024, 2048, 4096)
PRECISIONS = {"fp32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}


def rate(size: int, dtype: tf.DType, seconds: float) -> float:
    """Return the operations per second of `size` x `size` products, measured for `seconds`."""
    a, b = (tf.cast(tf.random.normal((size, size)), dtype) for _ in range(2))

    @tf.function
    def products(count: tf.Tensor) -> tf.Tensor:
        last = tf.constant(0, dtype)
        for _ in tf.range(count):
            last = tf.matmul(a, b)[0, 0]
        return last

    def took(count: int) -> float:
        start = time.perf_counter()
        products(tf.constant(count)).numpy()
        return time.perf_counter() - start

    took(2)
    count = max(2, round(seconds / max(took(1), 1e-6)))
    return float(2 * size**3 * count / took(count))


def main() -> None:
    """Measure products of several sizes, and print an upper bound of samples per second.

    The bound is the best rate, divided by the number of operations that a training needs for one
    sample; an option gives this number.
    """
    parser = argparse.ArgumentParser(description="Print the rate of large matrix products.")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--seconds", type=float, default=1.0, help="per size")
    parser.add_argument("--gflop-per-sample", type=float, default=1.0)
    options = parser.parse_args()
    best = max(rate(size, PRECISIONS[options.precision], options.seconds) for size in SIZES)
    print_rate(best / (options.gflop_per_sample * 1e9))


if __name__ == "__main__":
    main()
