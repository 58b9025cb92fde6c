"""Generate the page that says which machine takes which image.

The first table follows from the definitions of the images, the second one from targets and recipes.
"""

from __future__ import annotations

from collections.abc import Iterator

from generator import markdown
from generator.pages import Page, fill
from generator.sources import Sources
from trimaran.architectures import ARCHITECTURES, Architecture, of_machine
from trimaran.doctor import image_facts, versions
from trimaran.images import definition
from trimaran.images.definition import Image
from trimaran.images.parts import Gpu
from trimaran.recipes import library, targets

PLACE = "reference/machines.md"

PROCESSORS: dict[Architecture, str] = {
    "amd64": "x86-64: Intel Xeon, AMD EPYC",
    "arm64": "AArch64: NVIDIA Grace and GH200, AWS Graviton, Ampere",
}
"""Architecture -> its processors in words."""

GPUS: dict[Gpu | None, str] = {None: "none", "nvidia": "NVIDIA", "amd": "AMD"}
"""Vendor of a GPU in an image's definition -> its name on the page."""

KINDS = ("processor", "GPU", "image", "architecture", "remark")
NODES = ("target", "node", "architecture", "image", "recipes")


def page(read: Sources) -> Page:
    """Return the page with two tables: images by kind of processor and GPU, and by target."""
    frameworks = [image for image in read.images if image.kind == "framework"]
    text = fill(
        "machines.md.j2", PLACE, kinds=markdown.table(KINDS, kinds(frameworks)),
        nodes=markdown.table(NODES, nodes()),
    )
    return Page(PLACE, text, "Which machine takes which image")


def kinds(frameworks: list[Image]) -> Iterator[list[str]]:
    """Yield a row for each architecture, vendor of GPUs and framework image."""
    for architecture in ARCHITECTURES:
        for vendor, gpu in GPUS.items():
            for image in frameworks:
                if image.gpu == vendor:
                    remark = _remark(image, architecture)
                    yield [PROCESSORS[architecture], gpu, f"`{image.name}`", architecture, remark]


def _remark(image: Image, architecture: Architecture) -> str:
    """Return the GPUs and the driver for which the image is made, or why it does not exist."""
    framework = definition.chain(image)[0]
    if architecture not in framework.architectures:
        return f"no image: {framework.lacks[architecture]}"
    kinds = ", ".join(image.gpu_architectures.get(architecture, ()))
    cuda = versions.numbers(image_facts.of_image(image).values.get("cuda", ""))
    driver = f"; driver from {versions.CUDA_DRIVERS[cuda[0]]} on" if cuda else ""
    return f"{kinds}{driver}"


def nodes() -> Iterator[list[str]]:
    """Yield a row for each target that has recipes."""
    recipes: dict[str, list[str]] = {}
    for name in library.names():
        recipes.setdefault(library.definition(name).target, []).append(name)
    for name in targets.names():
        if name in recipes:
            target = targets.load(name)
            machine = target.node.architecture
            images = sorted({library.definition(one).image.name for one in recipes[name]})
            yield [
                f"`{name}`", target.summary, of_machine(machine) or machine,
                "; ".join(_offer(image, machine) for image in images),
                ", ".join(_link(one) for one in recipes[name]),
            ]


def _offer(name: str, machine: str) -> str:
    """Return the name of an image; if it is not built for the machine, also the reason."""
    architecture = of_machine(machine)
    if architecture is None:
        return f"`{name}` has no image for {machine}"
    framework = definition.chain(definition.load(name))[0]
    if architecture in framework.architectures:
        return f"`{name}`"
    return f"`{name}` has no image for {architecture}: {framework.lacks[architecture]}"


def _link(recipe: str) -> str:
    return f"[{recipe}]({markdown.link(PLACE, f'recipes/{recipe}.md')})"
