"""Draw the graph of images as SVG: base images, framework images and app images."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace
from itertools import groupby

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from generator.pages import TEMPLATES
from trimaran.images import definition
from trimaran.images.definition import Image

WIDTH = 1080
_TOP = 76
_GAP = 14
_HEIGHT = 66
_APP_HEIGHT = 46
_LINE = 16
_LETTERS = 46
_APP_LETTERS = 42
"""Maximum characters in a line of the box of an app image; `_LETTERS`: of a framework image."""


@dataclass(frozen=True)
class Column:
    """One of the three columns: position, colours, heading and description."""

    x: int
    width: int
    fill: str
    stroke: str
    heading: str
    about: str


# The colours of site/docs/way.svg.
BASES = Column(20, 230, "#f6f8fa", "#8c959f", "base image", "of a registry, by digest")
FRAMEWORKS = Column(340, 330, "#ddf4ff", "#0072B2", "framework image",
                    "+ locked packages, Horovod compiled aside")
APPS = Column(760, 300, "#fff4e5", "#D55E00", "app image", "+ trainkit and the app")


@dataclass(frozen=True)
class Box:
    """The box of one image: its text and the position of its upper edge."""

    column: Column
    y: float
    height: int
    title: str
    lines: tuple[str, ...]

    @property
    def middle(self) -> float:
        """The vertical position at which edges end at the box."""
        return self.y + self.height / 2

    @property
    def title_at(self) -> float:
        """The baseline of the title, so that title and lines are centred in the box."""
        return self.middle + 5 - _LINE * len(self.lines) / 2

    @property
    def lines_at(self) -> list[tuple[float, str]]:
        """For each line of text below the title, the y coordinate of its baseline, and the text."""
        return [(self.title_at + _LINE * count + 1, line)
                for count, line in enumerate(self.lines, start=1)]


@dataclass(frozen=True)
class Edge:
    """A line from an image to an image that is built on it."""

    below: Box
    above: Box

    @property
    def path(self) -> str:
        """The attribute `d` of the SVG path."""
        start, end = self.below.column.x + self.below.column.width, self.above.column.x - 2
        bend = (start + end) / 2
        return (f"M{start} {self.below.middle:g}C{bend:g} {self.below.middle:g} "
                f"{bend:g} {self.above.middle:g} {end} {self.above.middle:g}")


def svg(all_images: list[Image]) -> str:
    """Return the SVG text for `all_images`, each app image beside its framework image."""
    boxes, edges = layout(all_images)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )
    bottom = max((box.y + box.height for box in boxes), default=_TOP)
    return environment.get_template("graph.svg.j2").render(
        width=WIDTH, height=f"{bottom + 24:g}", columns=(BASES, FRAMEWORKS, APPS), boxes=boxes,
        edges=edges,
    )


def layout(all_images: list[Image]) -> tuple[list[Box], list[Edge]]:
    """Return the boxes and the lines between them, from top to bottom."""
    boxes: list[Box] = []
    edges: list[Edge] = []
    y = float(_TOP)
    frameworks = sorted((i for i in all_images if i.base), key=lambda i: (_base(i), i.name))
    for base, standing in groupby(frameworks, key=_base):
        above = []
        for framework in standing:
            apps = sorted(i.name for i in all_images if i.framework == framework.name)
            box, over = _framework(framework, [i for i in all_images if i.name in apps], y)
            y = max(part.y + part.height for part in (box, *over)) + _GAP
            edges += [Edge(box, app) for app in over]
            boxes += [box, *over]
            above.append(box)
        middle = (above[0].middle + above[-1].middle) / 2
        name, digest = base
        box = Box(BASES, middle - _HEIGHT / 2, _HEIGHT, name, (digest,))
        edges += [Edge(box, framework) for framework in above]
        boxes.append(box)
        y += _GAP
    return boxes, edges


def _framework(framework: Image, apps: list[Image], y: float) -> tuple[Box, list[Box]]:
    """Return the box of a framework image and the boxes of its app images, all below `y`."""
    over: list[Box] = []
    used = 0.0
    for app in apps:
        if over:
            used += _GAP / 2
        entry = definition.entry(app)
        lines = textwrap.wrap(" · ".join(entry.verbs if entry else ()), _APP_LETTERS)
        height = _APP_HEIGHT + _LINE * max(0, len(lines) - 1)
        over.append(Box(APPS, y + used, height, app.name, tuple(lines)))
        used += height
    top = y + max(0.0, (used - _HEIGHT) / 2)
    shift = max(0.0, (_HEIGHT - used) / 2)
    over = [replace(box, y=box.y + shift) for box in over]
    return Box(FRAMEWORKS, top, _HEIGHT, framework.name,
               tuple(textwrap.wrap(framework.summary, _LETTERS))), over


def _base(framework: Image) -> tuple[str, str]:
    """Return the name and the shortened digest of the base image of `framework`."""
    if framework.base is None:
        raise ValueError(f"{framework.name} is not a framework image")
    name = framework.base.image.removeprefix("docker.io/").removeprefix("library/")
    digest = framework.base.digest
    return name.partition(":")[0], f"{digest[:19]}…" if digest else "digest given by the user"
