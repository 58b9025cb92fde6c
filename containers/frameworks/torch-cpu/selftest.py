"""Self-test of torch-cpu: the parts are there, compute, and come from the image alone."""

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
    """Allocator and OpenMP are preloaded, and no package comes from the user's home."""
    maps = Path("/proc/self/maps").read_text()
    for library in ("libtcmalloc_minimal", "libomp"):
        assert library in maps, f"{library} is not preloaded"
    assert not any("/.local/" in entry for entry in sys.path), sys.path
    assert os.environ.get("PYTHONNOUSERSITE") == "1", "PYTHONNOUSERSITE is not set"


def check_torch() -> None:
    """A bf16 matrix product is right to bf16's precision."""
    import torch

    torch.manual_seed(0)
    left, right = torch.randn(128, 128), torch.randn(128, 128)
    product = (left.bfloat16() @ right.bfloat16()).float()
    error = ((product - left @ right).norm() / (left @ right).norm()).item()
    assert error < 0.02, f"bf16 product is off by {error:.3f}"
    assert torch.backends.mkldnn.is_available(), "oneDNN is missing"
    print(f"torch {torch.__version__}: bf16 product within {error:.4f}")


def check_dali() -> None:
    """DALI decodes an image without a GPU, to the pixel."""
    import numpy as np
    import nvidia.dali as dali
    from nvidia.dali import fn, pipeline_def

    rows = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    picture = np.frombuffer(b"P6 16 16 255\n" + rows.tobytes(), dtype=np.uint8)

    @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    def pipeline():
        return fn.decoders.image(fn.external_source(lambda: [picture] * 2), device="cpu")

    (images,) = pipeline().run()
    assert (images.at(0) == rows).all(), "DALI decoded wrong pixels"
    print(f"DALI {dali.__version__}: decodes on the CPU")


def check_horovod() -> None:
    """Two ranks agree, started by Open MPI and by Horovod's own launcher over Gloo."""
    import horovod

    # mpirun refuses root, which is what a rootless Podman's user is inside.
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for name, launcher in LAUNCHERS.items():
        done = subprocess.run(
            [*launcher, sys.executable, str(RANKS)], env=env, capture_output=True, text=True,
            timeout=120, check=False,
        )
        assert done.returncode == 0, f"{name}:\n{done.stdout}\n{done.stderr}"
        print(f"Horovod {horovod.__version__} over {name}: 2 ranks agree")


if __name__ == "__main__":
    check_isolation()
    check_torch()
    check_dali()
    check_horovod()
    print("self-test passed")
