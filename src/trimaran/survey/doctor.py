"""What `trimaran doctor` looks at: whether this machine can build and run, and how well."""

from __future__ import annotations

import os
import shutil
import site
from collections.abc import Callable
from dataclasses import asdict
from itertools import starmap
from pathlib import Path
from typing import Literal

import psutil
from pydantic import BaseModel

from trimaran import paths, process
from trimaran.engines import Engine, selection
from trimaran.errors import TrimaranError
from trimaran.hostfacts import host_facts, root_lacks_capabilities

GIB = 2**30
BUILD_SPACE_GIB = 8
"""Free disk that building both CPU images takes: wheelhouse, unpacked tree and SIF."""


class Check(BaseModel):
    """One finding: what was looked at, how it is, and what to do about it.

    "none" is what is not here and need not be.
    """

    name: str
    status: Literal["ok", "none", "warn", "fail"]
    detail: str
    hint: str = ""


def examine() -> list[Check]:
    """Run all checks; none of them changes anything or touches the network."""
    checks: list[Callable[[], Check]] = [
        _namespaces, _mapped_users, _fuse, _root, _disk, _cores, _memory, _instructions, _user_site,
    ]
    return [*starmap(_engine, selection.every().items()), *map(_done, checks)]


def _done(check: Callable[[], Check]) -> Check:
    try:
        return check()
    except (TrimaranError, OSError) as error:  # such as a program that is not on PATH
        name = check.__name__.strip("_").replace("_", " ")
        return Check(name=name, status="warn", detail=f"cannot be looked at: {error}")


def _engine(name: str, engine: type[Engine]) -> Check:
    shown = name if engine.container else f"{name} engine"
    return Check(name=shown, **asdict(engine.condition()))


def _namespaces() -> Check:
    if process.run(["unshare", "--user", "--map-root-user", "true"]).returncode == 0:
        return Check(name="user namespaces", status="ok", detail="usable")
    return Check(
        name="user namespaces", status="fail", detail="refused by the kernel",
        hint="an administrator allows them: sysctl user.max_user_namespaces, "
        "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns",
    )


def _mapped_users() -> Check:
    if shutil.which("newuidmap") is not None:
        return Check(name="uidmap", status="ok", detail="newuidmap is installed")
    return Check(
        name="uidmap", status="warn", detail="newuidmap is missing: images cannot be built here",
        hint="an administrator installs it (Debian: uidmap); running images works without",
    )


def _fuse() -> Check:
    device = Path("/dev/fuse")
    if device.exists() and os.access(device, os.R_OK | os.W_OK):
        return Check(name="/dev/fuse", status="ok", detail="readable and writable")
    return Check(
        name="/dev/fuse", status="warn",
        detail="not usable: Apptainer unpacks the whole SIF at every start (slow)",
        hint="an administrator makes it usable: chmod 666 /dev/fuse",
    )


def _root() -> Check:
    if os.geteuid() != 0:
        return Check(name="user", status="ok", detail="an ordinary user, as intended")
    if root_lacks_capabilities():
        return Check(
            name="user", status="warn", detail="root without CAP_SYS_RESOURCE",
            hint="Apptainer cannot build images so: build as an ordinary user, or ENGINE=host",
        )
    return Check(name="user", status="ok", detail="root, which nothing here needs")


def _disk() -> Check:
    place = paths.cache()
    while not place.exists():
        place = place.parent
    free = psutil.disk_usage(str(place)).free / GIB
    return Check(
        name="disk", status="ok" if free >= BUILD_SPACE_GIB else "warn",
        detail=f"{free:.1f} GiB free for the cache {paths.cache()}",
        hint="" if free >= BUILD_SPACE_GIB
        else f"building CPU images wants {BUILD_SPACE_GIB} GiB: `trimaran cache prune`, or set"
        " TRIMARAN_CACHE to another disk",
    )


def _cores() -> Check:
    host = host_facts()
    return Check(name="cores", status="ok", detail=f"{host.cores} usable, {host.processor}")


def _memory() -> Check:
    gib = host_facts().memory_gib
    return Check(
        name="memory", status="ok" if gib >= 6 else "warn", detail=f"{gib} GiB",
        hint="" if gib >= 6 else "the quickstart wants 6 GiB",
    )


def _instructions() -> Check:
    flags = host_facts().cpu_flags
    fast = [flag for flag in flags if flag in {"amx_bf16", "avx512_bf16"}]
    return Check(
        name="instruction sets", status="ok" if fast else "warn",
        detail=", ".join(flags) or "none of AVX2, AVX-512, AMX",
        hint="" if fast else "no bfloat16 instructions: bf16 trains correctly but slowly here",
    )


def _user_site() -> Check:
    folder = Path(site.getusersitepackages())
    if not folder.is_dir() or not any(folder.iterdir()):
        return Check(name="~/.local", status="ok", detail="no user site-packages that could leak")
    return Check(
        name="~/.local", status="warn", detail=f"packages in {folder}",
        hint="runs set PYTHONNOUSERSITE=1, so they do not see it; your own scripts might",
    )
