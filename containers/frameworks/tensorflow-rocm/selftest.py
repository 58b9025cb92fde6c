"""Self-test of tensorflow-rocm: what a machine without a GPU can show, and more with one."""

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
    """TensorFlow is a build for ROCm, `tf.keras` is Keras 2, and products are right everywhere."""
    import numpy as np
    import tensorflow as tf

    assert tf.test.is_built_with_rocm(), f"TensorFlow {tf.__version__} is no build for ROCm"
    assert tf.keras.__name__.startswith("tf_keras"), f"tf.keras is {tf.keras.__name__}"
    gpus = tf.config.list_physical_devices("GPU")
    left, right = np.random.default_rng(0).standard_normal((2, 128, 128), dtype=np.float32)
    for device in ("CPU:0", *(["GPU:0"] if gpus else [])):
        with tf.device(device):
            product = tf.cast(left, tf.bfloat16) @ tf.cast(right, tf.bfloat16)
        off = tf.cast(product, tf.float32) - left @ right
        error = float(np.linalg.norm(off) / np.linalg.norm(left @ right))
        assert error < 0.02, f"bf16 product on {device} is off by {error:.3f}"
        print(f"TensorFlow {tf.__version__}: bf16 product on {device} within {error:.4f}")
    if not gpus:
        print("no GPU: GPU part not run")


def check_horovod() -> None:
    """Horovod has RCCL, MPI and Gloo; two ranks on the CPU agree, by MPI and by Gloo."""
    import horovod
    import horovod.tensorflow as hvd

    assert hvd.rocm_built(), "Horovod lacks ROCm"
    assert hvd.nccl_built(), "Horovod lacks RCCL"
    # mpirun refuses root, which is what a rootless Podman's user is inside.
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
           "HIP_VISIBLE_DEVICES": "-1"}  # two ranks may not share a GPU
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
