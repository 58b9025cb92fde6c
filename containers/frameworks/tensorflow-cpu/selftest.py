"""Self-test of tensorflow-cpu: the parts are there, compute, and come from the image alone."""

# ruff: noqa: S101, T201 - a self-test asserts, and says what it saw
import os
import subprocess
import sys
from pathlib import Path

RANKS = Path(__file__).with_name("selftest_ranks.py")
LAUNCHERS = {
    "MPI": ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none"],
    "Gloo": ["horovodrun", "--gloo", "-np", "2", "--network-interfaces", "lo",
             "--disable-cache"],  # it would be in $HOME
}


def check_isolation() -> None:
    """No package comes from the user's home."""
    assert not any("/.local/" in entry for entry in sys.path), sys.path
    assert os.environ.get("PYTHONNOUSERSITE") == "1", "PYTHONNOUSERSITE is not set"


def check_tensorflow() -> None:
    """Products and convolutions are right, oneDNN is on, and `tf.keras` is Keras 2."""
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.util import _pywrap_util_port

    assert _pywrap_util_port.IsMklEnabled(), "oneDNN is off"
    assert tf.keras.__name__.startswith("tf_keras"), f"tf.keras is {tf.keras.__name__}"
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((2, 128, 128), dtype=np.float32)
    product = tf.cast(tf.cast(left, tf.bfloat16) @ tf.cast(right, tf.bfloat16), tf.float32)
    error = relative_error(product, left @ right)
    assert error < 0.02, f"bf16 product is off by {error:.3f}"

    pictures = rng.standard_normal((2, 9, 9, 4), dtype=np.float32)
    kernel = rng.standard_normal((3, 3, 4, 8), dtype=np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(pictures, (3, 3), axis=(1, 2))
    expected = np.einsum("nyxchw,hwco->nyxo", windows, kernel)
    off = relative_error(tf.nn.conv2d(pictures, kernel, 1, "VALID"), expected)
    assert off < 1e-5, f"convolution is off by {off:.2g}"
    print(f"TensorFlow {tf.__version__}: bf16 product within {error:.4f}, oneDNN is on")


def relative_error(found, expected) -> float:
    """Return |found - expected| / |expected|, in the Euclidean norm."""
    import numpy as np

    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def check_horovod() -> None:
    """Two ranks agree, started by Open MPI and by Horovod's own launcher over Gloo."""
    import horovod

    # mpirun refuses root, which is what a rootless Podman's user is inside.
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for name, launcher in LAUNCHERS.items():
        done = subprocess.run(
            [*launcher, sys.executable, str(RANKS)], env=env, capture_output=True, text=True,
            timeout=240, check=False,
        )
        assert done.returncode == 0, f"{name}:\n{done.stdout}\n{done.stderr}"
        print(f"Horovod {horovod.__version__} over {name}: 2 ranks agree, Keras 2 and 3")


if __name__ == "__main__":
    check_isolation()
    check_tensorflow()
    check_horovod()
    print("self-test passed")
