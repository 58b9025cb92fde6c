"""Plot throughput: of ResNet-50 on different hardware, and of all published runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import NamedTuple

from generator.measured import METRIC, rates_of
from generator.plots import Plot
from generator.recipe_status import RecipeStatus
from generator.sources import Sources
from trimaran.evidence import age
from trimaran.report.rows import Dot, Row, Table


class Rate(NamedTuple):
    """The training rate of ResNet-50 on some hardware, with its source."""

    hardware: str
    rate: float
    number: str
    source: str
    recipe: str = ""

    @property
    def text(self) -> str:
        """The rate with thousands separators and at most one decimal."""
        return f"{self.rate:,.1f}" if self.rate < 100 else f"{round(self.rate, 1):,.10g}"


def _of_recipes(sources: Sources) -> Iterator[Rate]:
    """Yield the expected and measured rates of ResNet-50 recipes on up to eight devices."""
    for one in sources.standings.values():
        if one.file.recipe.args.get("model") != "resnet50" or one.ranks > 8:
            continue
        own = f"{one.ranks} x {one.hardware.removeprefix('Tesla ')}"
        for number in one.numbers:
            if number.expected.metric == METRIC:
                whose = "published" if number.date is None else "measured here"
                yield Rate(_label(own, one), number.expected.value, whose, number.cited, one.name)
        measured = rates_of(one)
        several = len({ran.version for ran in measured}) > 1
        for ran in measured:
            where = own if ran.on_target else ran.machine
            when = f"{ran.software}, {ran.day}" if several else f"{ran.day}"
            yield Rate(f"{_label(where, one)}, {when}", ran.rate, "measured here", ran.cited,
                       one.name)


def _label(hardware: str, one: RecipeStatus) -> str:
    """Return a label: hardware, precision and, if the images are synthetic, "synthetic"."""
    args = one.file.recipe.args
    return f"{hardware}, {args['precision']}{', synthetic' if args.get('synthetic') else ''}"


def _published(sources: Sources) -> Iterator[Rate]:
    """Yield the published rates of single GPUs that are not the expected value of a recipe."""
    for figure in sources.published.figures.values():
        if figure.unit == "img/s" and figure.what.endswith("per GPU"):
            source = sources.published.sources[figure.source]
            label = figure.what.removeprefix("ResNet-50 on an ").removesuffix(", per GPU")
            yield Rate(f"1 x {label}", figure.value, "published", f"{source.title} ({source.year})")


def _benchmark(sources: Sources) -> Iterator[Rate]:
    """Yield the rate of our app on CPU cores with synthetic images, from the newest benchmark."""
    for piece in sources.shelf.benchmarks.get("resnet_cpu", []):
        for rate in piece.content.rates:
            if rate.name == "ours, bf16, synthetic":
                machine = piece.content.machine.machine
                yield Rate(f"{machine.cores} cores of {machine.processor}, bf16, synthetic",
                           rate.median, "measured here", f"{piece.path}, {piece.content.day}")
                return


def throughput(sources: Sources) -> Plot:
    """Return a plot of the published and measured training rates of ResNet-50, by hardware."""
    found = [*_of_recipes(sources), *_published(sources), *_benchmark(sources)]
    found.sort(key=lambda one: -one.rate)
    rows = [
        Row(one.hardware, [Dot(one.rate, f"{one.text} img/s, {one.number}: {one.source}",
                               one.number)], text=one.text)
        for one in found
    ]
    return Plot(
        "throughput", Table("images per second", rows, ("published", "measured here"), log=True),
        f"Images per second of ResNet-50 in training, {len(found)} numbers, on a logarithmic"
        f" axis: from {found[-1].text} on {found[-1].hardware} to {found[0].text} on"
        f" {found[0].hardware}.",
        "ResNet-50 in training, ImageNet's size of images; sources and years are in the table.",
        ["hardware, precision", "img/s:", "number", "source", "recipe"],
        [[one.hardware, one.text, one.number, one.source,
          one.recipe and f"`{one.recipe}`"] for one in found],
    )


def _dated(day: dt.date, today: dt.date) -> str:
    return f"{day} (stale)" if age.is_stale(day, today) else f"{day}"


def ran(sources: Sources) -> Plot:
    """Return a plot of the throughput of published runs: medians by recipe, machine and day."""
    found = [one for standing in sources.standings.values() for one in rates_of(standing)]
    dots: dict[str, list[Dot]] = {}
    for one in found:
        few, many = min(one.rates), max(one.rates)
        runs = (f"{one.shown(one.rate)} {one.unit}, {len(one.rates)} runs, {one.machine},"
                f" {one.software}, {one.day}")
        dots.setdefault(one.recipe, []).append(Dot(one.rate, runs, one.machine, few, many))
    rows = [Row(recipe, some) for recipe, some in dots.items()]
    machines = list(dict.fromkeys(one.machine for one in found))
    return Plot(
        "evidence-throughput",
        Table("images (FutureGAN: clips) per second", rows, machines, log=True),
        f"Throughput of {sum(len(one.rates) for one in found)} runs in evidence, of"
        f" {len(rows)} recipes on {len(machines)} machines: the median of each day, and from the"
        " slowest run to the fastest.",
        "A dot for the median of a recipe, a machine, a framework version and a day, a line from"
        " the slowest run to the fastest. Recipes differ in network and images: compare each with"
        " itself. Dates and files are in the table.",
        ["recipe", "median:", "slowest:", "fastest:", "unit", "runs:", "machine",
         "framework", "date", "source"],
        [[one.recipe, *map(one.shown, (one.rate, min(one.rates), max(one.rates))), one.unit,
          len(one.rates), one.machine, one.software, _dated(one.day, sources.today),
          " ".join(one.files)] for one in found],
    )
