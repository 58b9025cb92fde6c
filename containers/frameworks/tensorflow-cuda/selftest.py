"""Self-test of tensorflow-cuda: what a machine without a GPU can show, and more with one."""

# ruff: noqa: S101, T201 - a self-test asserts, and says what it saw
import json
import os
import subprocess
import sys
from pathlib import Path

RANKS = Path(__file__).with_name("selftest_ranks.py")
LAUNCHERS = {
    "MPI": ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"],
    "Gloo": ["horovodrun", "--gloo", "--network-interfaces", "lo",
             "--disable-cache", "-np"],  # the cache would be in $HOME
}


def check_isolation() -> None:
    """No package comes from the user's home."""
    assert not any("/.local/" in entry for entry in sys.path), sys.path
    assert os.environ.get("PYTHONNOUSERSITE") == "1", "PYTHONNOUSERSITE is not set"


def check_tensorflow() -> int:
    """TensorFlow is a build for GPUs and computes right; return how many GPUs it sees."""
    import tensorflow as tf

    assert tf.keras.__name__.startswith("tf_keras"), f"tf.keras is {tf.keras.__name__}"
    assert tf.test.is_built_with_gpu_support(), f"TensorFlow {tf.__version__} is a build for CPUs"
    build = tf.sysconfig.get_build_info()
    toolkit = ", ".join(f"{key} {value}" for key, value in sorted(build.items())
                        if key.startswith(("cuda", "cudnn", "rocm")))
    print(f"TensorFlow {tf.__version__}, built with {toolkit}")
    check_products("CPU:0", tf.bfloat16)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        check_products("GPU:0", tf.float16)
        print(f"GPU 0 is a {tf.config.experimental.get_device_details(gpus[0])['device_name']}")
    return len(gpus)


def check_products(device, dtype) -> None:
    """A product in half precision and a convolution are right to their precision."""
    import numpy as np
    import tensorflow as tf

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
    # Loose enough for the 10 bits that Ampere and later GPUs take of an fp32 operand (TF32).
    off = relative_error(convolved, np.einsum("nyxchw,hwco->nyxo", windows, kernel))
    assert off < 1e-3, f"convolution on {device} is off by {off:.2g}"
    print(f"{dtype.name} product on {device} within {half:.4f}, convolution within {off:.2g}")


def relative_error(found, expected) -> float:
    """Return |found - expected| / |expected|, in the Euclidean norm."""
    import numpy as np

    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def check_horovod(gpus: int) -> None:
    """Horovod was built with NCCL, MPI and Gloo; ranks agree, on the GPUs too where there are."""
    import horovod
    import horovod.tensorflow as hvd

    built = json.loads(Path(horovod.__file__).with_name("metadata.json").read_text())
    assert hvd.mpi_built(), "Horovod lacks MPI"
    assert hvd.gloo_built(), "Horovod lacks Gloo"
    assert hvd.nccl_built(), "Horovod lacks NCCL"
    assert hvd.cuda_built() or hvd.rocm_built(), "Horovod lacks CUDA and ROCm"
    print(f"Horovod {horovod.__version__} has NCCL {hvd.nccl_built()}, MPI and Gloo; {built}")
    for name in LAUNCHERS:
        run_ranks(name, 2, "CPU")
    if gpus:
        run_ranks("MPI", min(gpus, 2), "GPU")  # NCCL takes one rank per GPU


def run_ranks(launcher: str, size: int, device: str) -> None:
    """Start the ranks' part of the self-test."""
    # mpirun refuses root, which is what a rootless Podman's user is inside.
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [*LAUNCHERS[launcher], str(size), sys.executable, str(RANKS), str(size), device],
        env=env, capture_output=True, text=True, timeout=300, check=False,
    )
    assert done.returncode == 0, f"{launcher}, {device}:\n{done.stdout}\n{done.stderr}"
    print(f"Horovod over {launcher}: {size} ranks agree on the {device}, with Keras 2 and 3")


if __name__ == "__main__":
    # Otherwise the first process takes all memory of a GPU, and the ranks find none.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    check_isolation()
    found = check_tensorflow()
    check_horovod(found)
    if not found:
        print("no GPU: GPU part not run")
    print("self-test passed")
