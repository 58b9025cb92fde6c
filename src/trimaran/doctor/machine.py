"""Check the machine itself: user, disk of the cache, cores, memory, and engines like Podman."""

from __future__ import annotations

import re

from trimaran.doctor import findings
from trimaran.doctor.engine import BUILD_SPACE_GIB
from trimaran.doctor.findings import Explained, Finding, Level
from trimaran.doctor.situation import Situation
from trimaran.engines import Engine, selection
from trimaran.errors import TrimaranError
from trimaran.hostfacts import CAP_SYS_RESOURCE, FLAGS, arm_processor

QUICKSTART_GIB = 6
"""Memory in GiB that the commands of the tutorial `quickstart.md` need."""

FAST_MATH = "DNNL_DEFAULT_FPMATH_MODE=BF16 would round fp32 products to bf16 (off by default)"
"""Note for the user of an Arm processor that has instructions for bf16.

DNNL_DEFAULT_FPMATH_MODE is an environment variable of oneDNN, the library with which PyTorch
computes (oneDNN's documentation: Primitive Attributes, floating-point math mode).
"""

FINDINGS: dict[str, Explained] = {
    "user": Explained(
        "machine", "warn",
        "The user is not root in a container without CAP_SYS_RESOURCE, in which Apptainer cannot"
        " build images.",
        "build as an ordinary user, or set ENGINE=host",
        "capabilities of a described machine",
    ),
    "cache-space": Explained(
        "machine", "warn",
        f"The disk of the cache has {BUILD_SPACE_GIB} GiB of free space for building CPU images.",
        "run `trimaran cache prune`, or set TRIMARAN_CACHE to a folder on another disk",
        "a described machine with a small disk",
    ),
    "cores": Explained(
        "machine", "ok", "The number of cores that a run may use, and the processor.", "",
        "information only",
    ),
    "memory": Explained(
        "machine", "warn", f"The memory is sufficient for the quickstart: {QUICKSTART_GIB} GiB.",
        "use a machine with more memory", "a described machine with 4 GiB",
    ),
    "cpu-flags": Explained(
        "machine", "warn",
        "The processor has bfloat16 instructions. Without them, bf16 trains correctly but slowly."
        " On Arm they also serve oneDNN's fast mathematics, which rounds fp32 to bf16.",
        "train in fp32 here", "described machines: AMD EPYC without AVX-512, Ampere Altra, Grace",
    ),
    "user-site": Explained(
        "machine", "warn",
        "~/.local has no Python packages. Runs ignore them, but your own scripts may import them.",
        "remove them, or set PYTHONNOUSERSITE=1 for your own scripts", "a package that is there",
    ),
    "engine-podman": Explained(
        "machine", "warn", "Podman and Buildah, which `--engine podman` uses, are installed.",
        "install both podman and buildah", "one of the two programs on PATH",
    ),
    "engine-host": Explained(
        "machine", "warn",
        "The host engine has wheels for this Python, and tcmalloc, without which training is"
        " slower.",
        "an administrator installs libtcmalloc-minimal4 (Debian); images have it",
        "a library name that does not exist",
    ),
}


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the machine; some checks are left out on a compute node."""
    checks = [_cores, _memory, _flags]
    if situation.login is None:
        checks = [_user, _cache_space, *checks, _user_site]
    return [one for one in (check(situation) for check in checks) if one is not None]


def engines() -> list[Finding]:
    """Return the findings about the engines (Podman, host) on this machine.

    Apptainer is left out, because another module checks it.
    """
    return [
        _of_engine(name, engine) for name, engine in selection.every().items()
        if name != "apptainer"
    ]


def _of_engine(name: str, engine: type[Engine]) -> Finding:
    try:
        condition = engine.condition()
    except (TrimaranError, OSError) as error:  # such as a program that is not on PATH
        return Finding(id=f"engine-{name}", level="warn", cause=f"cannot be checked: {error}",
                       remedy="install the program")
    level: Level = "ok" if condition.status == "none" else condition.status
    return Finding(id=f"engine-{name}", level=level, cause=condition.detail,
                   remedy="" if level == "ok" else condition.hint)


def _finding(identifier: str, level: Level, cause: str, remedy: str = "") -> Finding:
    return findings.found(FINDINGS, identifier, level, cause, remedy)


def _user(situation: Situation) -> Finding | None:
    user, rights = situation.facts.number("uid"), situation.facts.text("capabilities")
    if user is None:
        return None
    if user != 0:
        return _finding("user", "ok", "an ordinary user, as intended")
    known = re.fullmatch(r"[0-9a-f]{16}", rights or "")
    if known and not int(known[0], 16) >> CAP_SYS_RESOURCE & 1:
        return _finding("user", "warn", "root without CAP_SYS_RESOURCE: Apptainer cannot build"
                        " images")
    return _finding("user", "ok", "root, although an ordinary user is sufficient")


def _cache_space(situation: Situation) -> Finding | None:
    free = situation.facts.number("cache-free")
    if free is None:
        return None
    text = f"{free / 2**20:.1f} GiB free for the cache"
    if free >= BUILD_SPACE_GIB * 2**20:
        return _finding("cache-space", "ok", text)
    return _finding("cache-space", "warn", f"{text}, of {BUILD_SPACE_GIB} for building CPU images")


def _cores(situation: Situation) -> Finding | None:
    cores = situation.facts.number("cores")
    if cores is None:
        return None
    return _finding("cores", "ok", f"{cores} usable, {_processor(situation)}")


def _processor(situation: Situation) -> str:
    """Return the name of the processor, for an Arm processor with its highest clock rate.

    The names of x86-64 processors contain a clock rate, if their manufacturer wants them to.
    """
    facts = situation.facts
    if named := facts.text("processor"):
        return named
    numbers = (facts.text("processor-numbers") or "").split()
    if len(numbers) != 2:
        return "processor unknown"
    khz = facts.number("processor-khz")
    clock = f", up to {khz / 1e6:.2f} GHz" if khz else ""
    return arm_processor(" ".join(numbers)) + clock


def _memory(situation: Situation) -> Finding | None:
    memory = situation.facts.number("memory")
    if memory is None:
        return None
    gib = memory / 2**20
    if gib >= QUICKSTART_GIB:
        return _finding("memory", "ok", f"{gib:.1f} GiB")
    return _finding("memory", "warn", f"{gib:.1f} GiB, of {QUICKSTART_GIB} for the quickstart")


def _flags(situation: Situation) -> Finding | None:
    text = situation.facts.text("cpu-flags")
    if not text:
        return None
    own = set(text.split())
    known = [flag for flags in FLAGS.values() for flag in flags if flag in own]
    listed = ", ".join(known) or "none of AVX2, AVX-512, AMX, NEON, SVE"
    if "bf16" in own:
        return _finding("cpu-flags", "ok", f"{listed}; {FAST_MATH}")
    if {"amx_bf16", "avx512_bf16"} & own:
        return _finding("cpu-flags", "ok", listed)
    return _finding("cpu-flags", "warn", f"{listed}: no bfloat16 instructions")


def _user_site(situation: Situation) -> Finding | None:
    folder = situation.facts.text("user-site")
    if folder is None:
        return None
    if not folder:
        return _finding("user-site", "ok", "no user site-packages")
    return _finding("user-site", "warn", f"packages in {folder}")
