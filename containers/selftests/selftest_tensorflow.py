"""Self-test of the TensorFlow images: the image's libraries are used and compute correctly.

Argument: the vendor of the GPUs that the image supports (none, nvidia, amd). On a machine without
a GPU, the tests on GPUs are left out.
"""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import os
import sys

# Otherwise the first process allocates all memory of a GPU, and leaves none for the ranks.
os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"

import numpy as np
import tensorflow as tf
from selftest_common import (
    HOROVOD,
    check_horovod,
    check_isolation,
    check_no_horovod,
    conclude,
    run_ranks,
)
from tensorflow.python.util import _pywrap_util_port

TF32 = 1e-3  # Ampere and later GPUs round the operands of an fp32 convolution to 10 bits
FP32 = 1e-5


def check_tensorflow(gpu: str) -> int:
    """Check the build and the results of TensorFlow; return the number of visible GPUs."""
    assert tf.keras.__name__.startswith("tf_keras"), f"tf.keras is {tf.keras.__name__}"
    builds = {"nvidia": tf.test.is_built_with_cuda(), "amd": tf.test.is_built_with_rocm()}
    assert [of for of, built in builds.items() if built] == [gpu] * (gpu != "none"), builds
    if gpu == "none":
        assert _pywrap_util_port.IsMklEnabled(), "oneDNN is off"
        print(f"TensorFlow {tf.__version__} with oneDNN")
    else:
        print(f"TensorFlow {tf.__version__}, built with {tf.sysconfig.get_build_info()}")
    check_products("CPU:0", tf.bfloat16, FP32)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        check_products("GPU:0", tf.float16, TF32)
        print(f"GPU 0 is a {tf.config.experimental.get_device_details(gpus[0])['device_name']}")
    return len(gpus)


def check_products(device: str, dtype: tf.DType, tolerance: float) -> None:
    """Check a matrix product in `dtype` and an fp32 convolution against NumPy."""
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 256, 256), dtype=np.float32)
    pictures = rng.standard_normal((2, 9, 9, 4), dtype=np.float32)
    kernel = rng.standard_normal((3, 3, 4, 8), dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (3, 3), axis=(1, 2))
    with tf.device(device):
        product = tf.cast(tf.cast(left, dtype) @ tf.cast(right, dtype), tf.float32)
        convolved = tf.nn.conv2d(pictures, kernel, 1, "VALID")
    half = relative_error(product, left @ right)
    assert half < 0.02, f"{dtype.name} product on {device} is off by {half:.3f}"
    off = relative_error(convolved, np.einsum("nyxchw,hwco->nyxo", windows, kernel))
    assert off < tolerance, f"convolution on {device} is off by {off:.2g}"
    print(f"{dtype.name} product on {device} within {half:.4f}, convolution within {off:.2g}")


def relative_error(found, expected) -> float:
    """Return |found - expected| / |expected|, in the Euclidean norm."""
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


if __name__ == "__main__":
    image_gpu = sys.argv[1]
    check_isolation()
    found = check_tensorflow(image_gpu)
    if HOROVOD:
        import horovod.tensorflow as hvd

        check_horovod(hvd, image_gpu)
        run_ranks("selftest_tensorflow_ranks.py", found)
    else:
        check_no_horovod()
    conclude(image_gpu, found)
