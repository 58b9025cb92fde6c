"""Self-test of PyTorch for GPUs: what a machine without one can show, and more where there is one.

The images for GPUs have the same file; a test compares them.
"""

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
    """What is to be preloaded is, and no package comes from the user's home."""
    maps = Path("/proc/self/maps").read_text()
    for library in filter(None, os.environ.get("LD_PRELOAD", "").split(":")):
        assert str(Path(library).resolve()) in maps, f"{library} is not preloaded"
    assert not any("/.local/" in entry for entry in sys.path), sys.path
    assert os.environ.get("PYTHONNOUSERSITE") == "1", "PYTHONNOUSERSITE is not set"


def check_torch() -> None:
    """PyTorch is a build for GPUs; a matrix product on the device is right to its precision."""
    import torch

    toolkit = torch.version.cuda or torch.version.hip
    assert toolkit, f"torch {torch.__version__} is a build for CPUs"
    print(f"torch {torch.__version__} for {'CUDA' if torch.version.cuda else 'ROCm'} {toolkit},"
          f" with code for {torch._C._cuda_getArchFlags()}")
    check_product(torch.device("cpu"), torch.bfloat16)
    if torch.cuda.is_available():
        # Pascal and Volta have fp16 alone.
        native = torch.cuda.is_bf16_supported(including_emulation=False)
        check_product(torch.device("cuda"), torch.bfloat16 if native else torch.float16)
        print(f"GPU 0 is a {torch.cuda.get_device_name(0)}")


def check_product(device, dtype) -> None:
    """A product of half-precision matrices agrees with the one in fp32."""
    import torch

    torch.manual_seed(0)
    left, right = torch.randn(256, 256), torch.randn(256, 256)
    product = (left.to(device, dtype) @ right.to(device, dtype)).float().cpu()
    error = ((product - left @ right).norm() / (left @ right).norm()).item()
    assert error < 0.02, f"{dtype} product on {device} is off by {error:.3f}"
    print(f"{dtype} product on {device} within {error:.4f}")


def check_dali() -> None:
    """DALI decodes an image, to the pixel, and passes it to the GPU where there is one."""
    import numpy as np
    import nvidia.dali as dali
    import torch
    from nvidia.dali import fn, pipeline_def

    rows = np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)
    picture = np.frombuffer(b"P6 16 16 255\n" + rows.tobytes(), dtype=np.uint8)
    gpu = torch.version.cuda is not None and torch.cuda.is_available()

    @pipeline_def(batch_size=2, num_threads=1, device_id=0 if gpu else None)
    def pipeline():
        images = fn.decoders.image(fn.external_source(lambda: [picture] * 2), device="cpu")
        return images.gpu() if gpu else images

    (images,) = pipeline().run()
    if gpu:
        images = images.as_cpu()
    assert (images.at(0) == rows).all(), "DALI decoded wrong pixels"
    print(f"DALI {dali.__version__}: decodes{', and copies to the GPU' if gpu else ' on the CPU'}")


def check_horovod() -> None:
    """Horovod was built with NCCL, MPI and Gloo; ranks agree, on the GPUs too where there are."""
    import horovod
    import horovod.torch as hvd
    import torch

    built = json.loads(Path(horovod.__file__).with_name("metadata.json").read_text())
    assert hvd.mpi_built(), "Horovod lacks MPI"
    assert hvd.gloo_built(), "Horovod lacks Gloo"
    assert hvd.nccl_built(), "Horovod lacks NCCL"
    assert hvd.cuda_built() or hvd.rocm_built(), "Horovod lacks CUDA and ROCm"
    print(f"Horovod {horovod.__version__} has NCCL {hvd.nccl_built()}, MPI and Gloo,"
          f" for PyTorch {built['pytorch']}")
    for name in LAUNCHERS:
        run_ranks(name, 2, "cpu")
    if gpus := torch.cuda.device_count():
        run_ranks("MPI", min(gpus, 2), "cuda")  # NCCL takes one rank per GPU


def run_ranks(launcher: str, size: int, device: str) -> None:
    """Start the ranks' part of the self-test."""
    # mpirun refuses root, which is what a rootless Podman's user is inside.
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [*LAUNCHERS[launcher], str(size), sys.executable, str(RANKS), str(size), device],
        env=env, capture_output=True, text=True, timeout=180, check=False,
    )
    assert done.returncode == 0, f"{launcher}, {device}:\n{done.stdout}\n{done.stderr}"
    print(f"Horovod over {launcher}: {size} ranks agree on {device} tensors")


def has_gpu() -> bool:
    """Whether PyTorch sees a GPU."""
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    check_isolation()
    check_torch()
    check_dali()
    check_horovod()
    if not has_gpu():
        print("no GPU: GPU part not run")
    print("self-test passed")
