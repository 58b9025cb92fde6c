"""The checks of `trimaran doctor`: whether this machine can build images and run recipes."""

from __future__ import annotations

import os
import shutil
import site
from collections.abc import Callable
from pathlib import Path

import psutil

from trimaran import paths, process
from trimaran.engines import Condition, selection
from trimaran.errors import TrimaranError
from trimaran.hostfacts import host_facts, root_lacks_capabilities

GIB = 2**30
BUILD_SPACE_GIB = 8
"""Free disk in GiB that a build of both CPU images needs: wheelhouse, unpacked tree and SIF."""


def examine() -> dict[str, Condition]:
    """Return the result of each check, by name. The checks change nothing and use no network."""
    checks = {
        name if engine.container else f"{name} engine": engine.condition
        for name, engine in selection.every().items()
    } | {
        "user namespaces": _namespaces, "uidmap": _mapped_users, "/dev/fuse": _fuse, "user": _root,
        "disk": _disk, "cores": _cores, "memory": _memory, "instruction sets": _instructions,
        "~/.local": _user_site,
    }
    return {name: _done(check) for name, check in checks.items()}


def _done(check: Callable[[], Condition]) -> Condition:
    try:
        return check()
    except (TrimaranError, OSError) as error:  # such as a program that is not on PATH
        return Condition("warn", f"cannot be checked: {error}")


def _namespaces() -> Condition:
    if process.run(["unshare", "--user", "--map-root-user", "true"]).returncode == 0:
        return Condition("ok", "usable")
    return Condition(
        "fail", "refused by the kernel",
        "an administrator must allow them with sysctl: user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns",
    )


def _mapped_users() -> Condition:
    if shutil.which("newuidmap") is not None:
        return Condition("ok", "newuidmap is installed")
    return Condition(
        "warn", "newuidmap is missing: images cannot be built here",
        "an administrator must install it (Debian: uidmap); running images works without it",
    )


def _fuse() -> Condition:
    device = Path("/dev/fuse")
    if device.exists() and os.access(device, os.R_OK | os.W_OK):
        return Condition("ok", "readable and writable")
    return Condition(
        "warn", "not usable: Apptainer unpacks the whole SIF at every start (slow)",
        "an administrator must run: chmod 666 /dev/fuse",
    )


def _root() -> Condition:
    if os.geteuid() != 0:
        return Condition("ok", "an ordinary user, as intended")
    if root_lacks_capabilities():
        return Condition(
            "warn", "root without CAP_SYS_RESOURCE",
            "Apptainer cannot build images: build as an ordinary user, or set ENGINE=host",
        )
    return Condition("ok", "root, although an ordinary user is sufficient")


def _disk() -> Condition:
    place = paths.cache()
    while not place.exists():
        place = place.parent
    free = psutil.disk_usage(str(place)).free / GIB
    detail = f"{free:.1f} GiB free for the cache {paths.cache()}"
    if free >= BUILD_SPACE_GIB:
        return Condition("ok", detail)
    return Condition(
        "warn", detail,
        f"building CPU images needs {BUILD_SPACE_GIB} GiB: run `trimaran cache prune`, or set"
        " TRIMARAN_CACHE to a folder on another disk",
    )


def _cores() -> Condition:
    host = host_facts()
    return Condition("ok", f"{host.cores} usable, {host.processor}")


def _memory() -> Condition:
    gib = host_facts().memory_gib
    if gib >= 6:
        return Condition("ok", f"{gib} GiB")
    return Condition("warn", f"{gib} GiB", "the quickstart needs 6 GiB")


def _instructions() -> Condition:
    flags = host_facts().cpu_flags
    detail = ", ".join(flags) or "none of AVX2, AVX-512, AMX"
    if {"amx_bf16", "avx512_bf16"} & set(flags):
        return Condition("ok", detail)
    return Condition(
        "warn", detail, "no bfloat16 instructions: bf16 trains correctly but slowly here"
    )


def _user_site() -> Condition:
    folder = Path(site.getusersitepackages())
    if not folder.is_dir() or not any(folder.iterdir()):
        return Condition("ok", "no user site-packages")
    return Condition(
        "warn", f"packages in {folder}",
        "runs set PYTHONNOUSERSITE=1 and ignore them, but your own scripts may import them",
    )
