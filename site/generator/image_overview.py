"""Generate the graph and the table of all images in `containers/README.md`."""

from __future__ import annotations

from pathlib import Path

from generator import image_graph
from generator.evidence import ImageEvidence
from trimaran import paths, strict
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.images import definition, render
from trimaran.images.definition import Image
from trimaran.provenance import sbom

BEGIN = "<!-- images: written by `make generate` -->"
END = "<!-- end of images -->"

SHOWN = {
    "torch": "PyTorch",
    "tensorflow": "TensorFlow",
    "tensorflow-cpu": "TensorFlow",
    "tf-keras": "tf-keras",
    "nvidia-cudnn-cu12": "cuDNN",
    "nvidia-cudnn-cu13": "cuDNN",
    "nvidia-nccl-cu12": "NCCL",
    "nvidia-nccl-cu13": "NCCL",
    "horovod": "Horovod",
    "nvidia-dali-cuda120": "DALI",
    "nvidia-dali-cuda130": "DALI",
    "openmpi": "Open MPI",
    "openmpi-bin": "Open MPI",
    "mpi4py": "mpi4py",
}
"""Packages that the table shows, in this order: name in a lock -> name in the table."""

VENDORS = {"nvidia": "NVIDIA GPU, CUDA ", "amd": "AMD GPU, ROCm "}
"""Vendor of a GPU -> text that precedes the version of CUDA or ROCm in the table."""


def write() -> None:
    """Write `containers/graph.svg` and the table in `containers/README.md`."""
    for path, text in _files().items():
        write_atomic(path, text)


def check() -> None:
    """Raise UsageError unless the graph and the table of images have the content of `write`."""
    render.refuse_stale(_files(), "make generate")


def table(all_images: list[Image]) -> str:
    """Return the table of `all_images` in Markdown: framework images first.

    It has a row for each processor architecture of each image.
    """
    ordered = sorted(all_images, key=lambda image: (image.kind == "app", image.name))
    head = "| image | what is in it | for | SIF | start | self-test |"
    rows = [_row(one) for image in ordered for one in on_each(image)]
    return "\n".join([head, "|---|---|---|---|---|---|", *rows])


def on_each(image: Image) -> list[Image]:
    """Return `image` for each processor architecture for which it can be built, amd64 first.

    What is generated must not depend on the processor of the machine that generates it.
    """
    return [definition.on(image, one) for one in definition.chain(image)[0].architectures]


def packages(image: Image) -> list[str]:
    """Return the main packages of a framework image, each with its locked version."""
    locked = sbom.locked_python(image)
    locked |= {package.name: package.version for package in sbom.locked_debian(image)}
    return [f"{shown} {_upstream(locked[name])}" for name, shown in SHOWN.items() if name in locked]


def _upstream(version: str) -> str:
    """Return a version without Debian's epoch and revision, and without a local version."""
    return version.rpartition(":")[2].partition("-")[0].partition("+")[0]


def _row(image: Image) -> str:
    folder = image.folder.relative_to(paths.repository() / "containers")
    return "| " + " | ".join([
        f"[`{image.name}`]({folder}/image.yaml)", _content(image),
        f"{hardware(image)} ({image.architecture})",
        *evidence_cells(image),
    ]) + " |"


def evidence_cells(image: Image) -> tuple[str, str, str]:
    """Return size, start time and self-test result of the image's SIF, from the newest evidence."""
    found = newest(image)
    if found is None:
        return "no evidence", "", ""
    file, seen = found
    link = file.relative_to(paths.repository())
    size = f"[{seen.size / 1e6:,.0f} MB](../{link}) ({seen.date[:10]})"
    # Engines run the self-test before they keep an image, so every SIF has passed it.
    passed = "passed"
    if definition.chain(image)[0].gpu and not seen.host.accelerators:
        passed = "passed; its GPU part was not run"
    return size, start(seen), passed


def start(seen: ImageEvidence) -> str:
    """Return the warm start time of an image, or "none" if it was emulated."""
    return "none" if seen.start is None else f"{seen.start:.2f} s"


def newest(image: Image) -> tuple[Path, ImageEvidence] | None:
    """Return the file and the content of the newest evidence for which `shows` is true, or None.

    Raises:
        UsageError: a file is not evidence of an image.
    """
    folder = paths.repository() / "site/results/images" / image.name
    for file in sorted(folder.glob("*.json"), reverse=True):
        seen = strict.load_json(ImageEvidence, file)
        if shows(image, seen):
            return file, seen
    return None


def shows(image: Image, seen: ImageEvidence) -> bool:
    """Return whether evidence is about the SIF of `image` with its current framework version.

    Older evidence without a version (None) is about the current one, because such evidence is
    deleted when the framework gets another version.
    """
    return (seen.engine == "apptainer" and seen.architecture == image.architecture
            and seen.version in (None, definition.chain(image)[0].version))


def hardware(image: Image) -> str:
    """Return the hardware of an image: CPU, or the GPU vendor with the version of its software."""
    framework = definition.chain(image)[0]
    if framework.gpu is None:
        return "CPU"
    short = str(framework.short)
    if framework.variant is not None:
        short = short.removesuffix(f"-{framework.variant.variant}")
    version = short.rpartition("-")[2].lstrip("abcdefghijklmnopqrstuvwxyz")
    return f"{VENDORS[framework.gpu]}{version}"


def _content(image: Image) -> str:
    if image.app is not None:
        return f"`{image.framework}` + {', '.join(image.app.packages)}"
    if image.variant is not None:
        file = f"variants/{image.variant.variant}.yaml"
        return f"`{image.variant.of}` + what [`{file}`]({file}) adds"
    if image.base is not None and image.python is not None and image.python.base is not None:
        below = image.base.image.removeprefix("docker.io/")
        return f"`{below}` + {', '.join(packages(image))}"
    return ", ".join(packages(image))


def _files() -> dict[Path, str]:
    """Return the generated texts of `graph.svg` and `README.md` in `containers`: path -> text."""
    paths.refuse_installed(paths.repository())
    folder = paths.repository() / "containers"
    images = definition.every()
    # The images of a user's own folder are omitted.
    shown = [image for image in images if image.folder.is_relative_to(folder)]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{folder / 'README.md'}: the lines `{BEGIN}` and `{END}` are missing",
                         code="file-invalid")
    return {
        folder / "graph.svg": image_graph.svg(shown),
        folder / "README.md": f"{before}{BEGIN}\n\n{table(shown)}\n\n{END}{after}",
    }
