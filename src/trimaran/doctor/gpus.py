"""Compare the GPUs of a node, their driver and its libraries with the needs of an image."""

from __future__ import annotations

import re

from trimaran.doctor import findings, versions
from trimaran.doctor.findings import Explained, Finding, Level
from trimaran.doctor.limits import MIB, need_of_rank
from trimaran.doctor.situation import ImageFacts, Situation
from trimaran.images import definition
from trimaran.run import horovod

OLDER_CUDA = "torch-cuda12"
"""The image with the oldest CUDA, which does not exist for every architecture of processors."""

NEWER_DRIVER = (
    "ask for a newer driver; on data-centre GPUs NVIDIA's package cuda-compat can replace its"
    " libraries"
)
"""The way out of a driver that is too old, on processors of every architecture."""

FINDINGS: dict[str, Explained] = {
    "gpu-missing": Explained(
        "engine", "fail",
        "The driver of the image's GPUs is loaded, and the node has as many GPUs as the recipe"
        " uses.",
        "choose a partition with GPUs, and set gres of the cluster in the site file",
        "a recipe for eight GPUs on described machines with none and with four",
    ),
    "gpu-driver": Explained(
        "engine", "fail",
        "The driver is new enough for the image's CUDA or ROCm. An older driver refuses every"
        " program of the image.",
        f"use an image with an older CUDA ({OLDER_CUDA}); or {NEWER_DRIVER}",
        "a driver of the branch 470 on a described machine",
    ),
    "gpu-architecture": Explained(
        "engine", "fail",
        "The code in the image was compiled for the architecture of the GPUs.",
        "use another image: containers/README.md lists the GPUs of each",
        "a P100 with an image for CUDA 13 on a described machine",
    ),
    "horovod": Explained(
        "engine", "fail",
        "The image of AMD that is built here contains Horovod, or the recipe does not use it.",
        "use a recipe with DDP or with TensorFlow's own strategies; containers/README.md tells when"
        " images of AMD are built without Horovod",
        "the fact of an image that was built without Horovod, and a recipe that uses it",
    ),
    "gpu-memory": Explained(
        "engine", "fail",
        "The memory of each GPU is at least the peak memory that the recipe expects of the ranks"
        " that use it. Recipes without an expectation of peak memory are not checked.",
        "use GPUs with more memory, more ranks, or a smaller batch; `trimaran show recipes RECIPE`"
        " prints the expectation and its source",
        "the recipe of a published training that takes 15.5 GB, on described GPUs of 12 GB",
    ),
    "glibc": Explained(
        "engine", "fail",
        "The libraries of the host that `--nv` or `--rocm` binds into the container need no newer"
        " GLIBC than that of the image. Otherwise programs end with: version GLIBC_2.38 not"
        " found.",
        "use an image with a newer base, or ask the site to leave the libraries out of Apptainer's"
        " nvliblist.conf or rocmliblist.conf",
        "a real library in the bind list that refers to GLIBC_2.38",
    ),
}

GRAPHICS = re.compile(
    r"lib(GL|EGL|OpenGL|OpenCL|X|wayland|vdpau|nvidia-(egl|gl|fbc|vulkan)|nvoptix)"
)
"""Matches the names of libraries that only graphics programs load."""


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the GPUs, for an image that uses GPUs."""
    image = situation.image
    if image is None or not image.values.get("gpu"):
        return []
    checks = (_missing, _driver, _architecture, _horovod, _memory, _glibc)
    return [one for one in (check(situation, image) for check in checks) if one is not None]


def _finding(identifier: str, level: Level, cause: str, remedy: str = "") -> Finding:
    return findings.found(FINDINGS, identifier, level, cause, remedy)


def _rows(situation: Situation) -> list[list[str]]:
    """Return one row for each NVIDIA GPU: the four values that nvidia-smi prints.

    They are name, driver version, compute capability and memory.
    """
    text = situation.facts.text("gpus.nvidia") or ""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
    return [row for row in rows if len(row) == 4]


def _kinds(situation: Situation, image: ImageFacts) -> list[str]:
    """Return the model name of each NVIDIA GPU, or the instruction set of each AMD GPU."""
    if image.values["gpu"] == "nvidia":
        return [name for name, *_ in _rows(situation)]
    words = (situation.facts.text("gpus.amd") or "").split()
    return [versions.gfx(int(word)) for word in words if word.isdecimal() and len(word) < 10]


_UNKNOWN = {124: "nvidia-smi did not answer within 5 s", 127: "nvidia-smi is not on PATH"}
"""Reason why the number of GPUs is unknown, by exit status of `nvidia-smi`."""


def _missing(situation: Situation, image: ImageFacts) -> Finding | None:
    recipe, kinds = situation.recipe, _kinds(situation, image)
    wanted = recipe.recipe.resources.gpus_per_node if recipe is not None else 0
    title = {"nvidia": "NVIDIA", "amd": "AMD"}.get(image.values["gpu"], image.values["gpu"])
    if len(kinds) >= max(wanted, 1):
        return _finding("gpu-missing", "ok", f"{len(kinds)} x {kinds[0]}")
    if situation.before_job or not wanted:
        return None
    said = situation.facts.facts.get("gpus.nvidia")
    if said is not None and said.status in _UNKNOWN and situation.facts.text("driver.nvidia"):
        return _finding("gpu-missing", "warn", f"the driver is loaded, but {_UNKNOWN[said.status]},"
                        " so that the GPUs are unknown", "run `nvidia-smi` on the node: it is slow"
                        " without nvidia-persistenced, and hangs with a defective GPU")
    return _finding("gpu-missing", "fail",
                    f"{len(kinds) or 'no'} {title} GPU here, of {wanted} that the recipe uses")


def _driver(situation: Situation, image: ImageFacts) -> Finding | None:
    if image.values["gpu"] == "amd":
        return _rocm_driver(situation, image)
    rows = _rows(situation)
    module = re.search(r"Kernel Module.*?\s([0-9]+(?:\.[0-9]+)+)\s",
                       situation.facts.text("driver.nvidia") or "")
    driver = rows[0][1] if rows else module[1] if module else ""
    cuda = versions.numbers(image.values.get("cuda", ""))
    least = versions.CUDA_DRIVERS.get(cuda[0]) if cuda else None
    if not versions.numbers(driver) or least is None:
        return None
    text = f"driver {driver}, CUDA {image.values['cuda']} in the image"
    if versions.numbers(driver)[0] >= least:
        return _finding("gpu-driver", "ok", text)
    older = definition.load(OLDER_CUDA).architectures
    lacks = image.definition is not None and image.definition.architecture not in older
    return _finding("gpu-driver", "warn" if situation.before_job else "fail",
                    f"{text}: it needs {least} or newer", NEWER_DRIVER if lacks else "")


def _rocm_driver(situation: Situation, image: ImageFacts) -> Finding | None:
    driver = situation.facts.text("driver.amd") or ""
    rocm = versions.numbers(image.values.get("rocm", ""))
    if not versions.numbers(driver) or not rocm or rocm[0] not in versions.ROCM_DRIVERS:
        return None
    release, least = versions.ROCM_DRIVERS[rocm[0]]
    text = f"driver amdgpu {driver}, ROCm {image.values['rocm']} in the image"
    if versions.numbers(driver) >= least:
        return _finding("gpu-driver", "ok", text)
    return _finding("gpu-driver", "warn", f"{text}: AMD supports the driver of ROCm {release}"
                    f" (amdgpu {'.'.join(map(str, least))}) or newer", "ask for a newer driver")


def _architecture(situation: Situation, image: ImageFacts) -> Finding | None:
    compiled = image.values.get("gpu-architectures", "").split()
    if not compiled:
        return None
    if image.values["gpu"] == "amd":
        return _amd_architecture(_kinds(situation, image), compiled)
    bad: dict[str, str] = {}
    good: dict[str, str] = {}
    for name, _, text, _ in _rows(situation):
        capability = versions.numbers(text)
        if len(capability) == 2:
            way = versions.compiled_for(capability, compiled)
            (good if way == "code" else bad)[f"{name} (compute capability {text})"] = way
    code = f"the image has code for {', '.join(compiled)}"
    if not good and not bad:
        return None
    if not bad:
        return _finding("gpu-architecture", "ok", f"{', '.join(good)}: {code}")
    if all(bad.values()):
        return _finding("gpu-architecture", "warn", f"{', '.join(bad)}: {code}; the driver compiles"
                        " it at the first start, which takes minutes")
    level: Level = "warn" if situation.before_job else "fail"
    return _finding("gpu-architecture", level, f"{', '.join(bad)}: {code} only")


def _amd_architecture(kinds: list[str], compiled: list[str]) -> Finding | None:
    if not kinds:
        return None
    other = sorted(set(kinds) - set(compiled))
    if not other:
        return _finding("gpu-architecture", "ok", ", ".join(sorted(set(kinds))))
    # AMD's frameworks support more GPUs than Horovod, which the build of the image compiles.
    return _finding("gpu-architecture", "warn", f"{', '.join(other)}: Horovod in the image has code"
                    f" for {', '.join(compiled)} only", "use another strategy than horovod")


def _horovod(situation: Situation, image: ImageFacts) -> Finding | None:
    if image.values.get("horovod") != "no" or situation.recipe is None:
        return None
    recipe = situation.recipe.recipe
    needed = horovod.needs(recipe, recipe.args.values())
    uses = "and the recipe uses it" if needed else "which the recipe does not use"
    return _finding("horovod", "fail" if needed else "ok", f"built without Horovod, {uses}")


def _memory(situation: Situation, image: ImageFacts) -> Finding | None:
    need, recipe = need_of_rank(situation.recipe), situation.recipe
    if image.values["gpu"] == "amd":
        words = (situation.facts.text("memory.amd") or "").split()
        sizes = [int(word) for word in words if word.isdecimal()]
    else:
        texts = [re.fullmatch(r"(\d+) MiB", text) for *_, text in _rows(situation)]
        sizes = [int(text[1]) * MIB for text in texts if text is not None]
    if need is None or recipe is None or not sizes or not recipe.recipe.resources.gpus_per_task:
        return None
    ranks = recipe.recipe.resources.mps or 1
    cause = f"{min(sizes) / 1e9:.1f} GB of memory; the recipe expects {ranks * need / 1e9:.1f} GB"
    if min(sizes) >= ranks * need:
        return _finding("gpu-memory", "ok", cause)
    return _finding("gpu-memory", "warn" if situation.before_job else "fail", cause)


def _glibc(situation: Situation, image: ImageFacts) -> Finding | None:
    own = versions.numbers(image.values.get("glibc", ""))
    bound = situation.facts.text(f"bound.{image.values['gpu']}")
    if not own or not bound:
        return None
    newer: dict[str, str] = {}
    for line in bound.splitlines():
        path, _, version = line.rpartition(" ")
        if versions.numbers(version) > own:
            newer[path.rpartition("/")[2]] = version
    if not newer:
        return _finding("glibc", "ok", f"GLIBC {image.values['glibc']} in the image is sufficient")
    needed = [name for name in newer if not GRAPHICS.match(name)]
    named = ", ".join(f"{name} ({newer[name]})" for name in (needed or list(newer))[:3])
    more = len(needed or newer) - 3
    text = (f"the image has GLIBC {image.values['glibc']}; newer versions are needed by {named}"
            + (f" and {more} more" if more > 0 else ""))
    if not needed:
        return _finding("glibc", "warn", f"{text}, which only graphics programs load")
    return _finding("glibc", "warn" if situation.before_job else "fail", text)
