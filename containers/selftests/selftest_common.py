"""Functions that the self-tests of the framework images share."""

# ruff: noqa: S101, T201 - a self-test uses assert, and prints what it tested
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

HOROVOD = os.environ.get("TRIMARAN_HOROVOD", "yes") == "yes"
"""Whether the image was built with Horovod; images of AMD can be built without it."""

LAUNCHERS = {
    "MPI": ["mpirun", "--oversubscribe", "--bind-to", "none", "-n"],
    "Gloo": ["horovodrun", "--gloo", "--network-interfaces", "lo",
             "--disable-cache", "-np"],  # because the cache would be in $HOME
}


def check_isolation() -> None:
    """Check that the libraries in LD_PRELOAD are loaded, and no package is from the user's home."""
    maps = Path("/proc/self/maps").read_text()
    for library in filter(None, os.environ.get("LD_PRELOAD", "").split(":")):
        assert f"/{library}" in maps, f"{library} is not preloaded"  # a name without a folder
    assert not any("/.local/" in entry for entry in sys.path), sys.path
    assert os.environ.get("PYTHONNOUSERSITE") == "1", "PYTHONNOUSERSITE is not set"


def check_no_horovod() -> None:
    """Check that an image that was built without Horovod does not contain it."""
    assert importlib.util.find_spec("horovod") is None, "the label denies Horovod, which is there"
    print("no Horovod in this image: strategies of the framework only, ranks not tested")


def check_horovod(hvd, gpu: str) -> None:
    """Check that Horovod (module `hvd`) was built with MPI, Gloo, and NCCL or RCCL for `gpu`."""
    assert hvd.mpi_built(), "Horovod lacks MPI"
    assert hvd.gloo_built(), "Horovod lacks Gloo"
    if gpu != "none":
        assert hvd.nccl_built(), "Horovod lacks NCCL or RCCL"
        assert hvd.rocm_built() if gpu == "amd" else hvd.cuda_built(), f"Horovod is not for {gpu}"
        print(f"Horovod has NCCL {hvd.nccl_built()}, MPI and Gloo")


def run_ranks(script: str, gpus: int) -> None:
    """Run `script` on two CPU ranks with each launcher, and on up to two GPUs, one rank per GPU."""
    for launcher in LAUNCHERS:
        _run(launcher, script, 2, "cpu")
    if gpus:
        _run("MPI", script, min(gpus, 2), "gpu")  # NCCL takes one rank per GPU


def _run(launcher: str, script: str, size: int, device: str) -> None:
    # mpirun refuses to run as root, and the user of a rootless Podman is root in the container.
    env = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    ranks = str(Path(__file__).with_name(script))
    done = subprocess.run(
        [*LAUNCHERS[launcher], str(size), sys.executable, ranks, str(size), device],
        env=env, capture_output=True, text=True, timeout=300, check=False,
    )
    assert done.returncode == 0, f"{launcher}, {device}:\n{done.stdout}\n{done.stderr}"
    print(f"Horovod over {launcher}: {size} ranks agree on the {device}")


def conclude(gpu: str, found: int) -> None:
    """Print that the self-test passed, and whether the tests on GPUs were left out."""
    if gpu != "none" and not found:
        print("no GPU: GPU part not run")
    print("self-test passed")


def check_mpi(size: int) -> None:
    """Check a sum over `size` ranks by mpi4py, which must use the Open MPI that started them."""
    from mpi4py import MPI

    assert MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank + 1) == size * (size + 1) // 2
