"""Read the facts of an image from its definition and locks, without building the image.

Only the fact `horovod` is read from the built image.
"""

from __future__ import annotations

import re
from pathlib import Path

from trimaran import paths
from trimaran.doctor.situation import ImageFacts
from trimaran.engines import image_contents
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import TrimaranError
from trimaran.images import definition, lock
from trimaran.images.definition import Image

DEBIAN = {
    "glibc": "libc6", "pmix": "libpmix2", "ucx": "libucx0", "libfabric": "libfabric1",
    "verbs": "libibverbs1",
}
"""A dictionary that maps a component, such as `glibc`, to the Debian package that contains it."""

MPI = {"openmpi-bin": "Open MPI", "mpich": "MPICH"}
"""A dictionary that maps a Debian package to the MPI implementation that it contains."""

WHEELS = {"cuda": r"nvidia-cuda-runtime(-cu\d+)?", "nccl": r"nvidia-nccl-cu\d+"}
"""A dictionary that maps a component to a regular expression for the wheel that contains it."""

UBUNTU_GLIBC = {"22.04": "2.35", "24.04": "2.39"}
"""A dictionary that maps a release of Ubuntu to the version of its GLIBC.

Source: packages.ubuntu.com, package libc6.
"""


def of_image(image: Image) -> ImageFacts:
    """Return the facts of `image`, such as the versions of its components.

    Raises:
        UsageError: a lock of the image is missing or invalid.
    """
    below = definition.chain(image)[0]
    kinds = below.gpu_architectures.get(below.architecture, ())
    values = {"gpu": below.gpu or "", "gpu-architectures": " ".join(kinds)}
    if below.debian:
        values |= _debian(below.folder / definition.lock_name(below, "debian.lock"))
        values |= _wheels(below)
    else:
        values |= _vendor(below)
    return ImageFacts(image.name, values, image)


def horovod(image: Image) -> dict[str, str]:
    """Return whether the built image contains Horovod: {"horovod": "yes"} or {"horovod": "no"}.

    The definition does not determine this for images of AMD, because they can be built without
    Horovod. Return {} for all other images, and if Apptainer has no built image on this machine
    or fails.
    """
    if not definition.can_lack_horovod(image) or not paths.has_cache():
        return {}
    try:
        engine = Apptainer()
        built = engine.find(image, thorough=False)
        if built is None:
            return {}
        return {"horovod": "no" if image_contents.lacks_horovod(engine, image, built) else "yes"}
    except TrimaranError:  # other checks report an Apptainer that is missing or fails
        return {}


def _debian(path: Path) -> dict[str, str]:
    versions = {one.name: _upstream(one.version) for one in lock.read_debian(path)}
    own = [f"{title} {versions[name]}" for name, title in MPI.items() if name in versions]
    return {**{fact: versions.get(name, "") for fact, name in DEBIAN.items()},
            "mpi": own[0] if own else "", "nccl-ofi": ""}  # no Debian package has it


def _upstream(version: str) -> str:
    """Return the upstream part of a Debian version, such as `2.36` for `1:2.36-9+deb12u14`."""
    return re.split(r"[-+~]", version.partition(":")[2] or version)[0]


def _wheels(image: Image) -> dict[str, str]:
    path = definition.wheels_lock(image)
    python = definition.interpreter(image).version
    pins = [pin for pin in (lock.read(path) if path is not None else ())
            if pin.applies_to(python, image.architecture)]
    found = {
        fact: next((pin.version for pin in pins if re.fullmatch(pattern, pin.name)), "")
        for fact, pattern in WHEELS.items()
    }
    return {**found, "cuda": ".".join(found["cuda"].split(".")[:2]), "rocm": ""}


def _vendor(image: Image) -> dict[str, str]:
    """Return the versions of ROCm and GLIBC in a vendor's image, if its reference names them."""
    reference = image.base.image if image.base is not None else ""
    values = {}
    if rocm := re.search(r"rocm([0-9]+\.[0-9]+)", reference):
        values["rocm"] = rocm[1]
    if (release := re.search(r"ubuntu([0-9]+\.[0-9]+)", reference)) and release[1] in UBUNTU_GLIBC:
        values["glibc"] = UBUNTU_GLIBC[release[1]]
    return values
