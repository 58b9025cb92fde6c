"""The plots of speed: one size after another, machine beside machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from generator.plots import Plot, encoding
from generator.sources import Sources
from trimaran.evidence.standing import Standing


@dataclass(frozen=True)
class Size:
    """One size of an experiment: how many devices, how fast, and who says so, when."""

    series: str
    devices: int
    rate: float
    source: str


def scaling_of(points: Sequence[Standing]) -> list[Plot]:
    """Return the plot of a series: its rate beside that of perfect scaling from its first point."""
    sizes = [
        Size("published" if number.date is None else "measured", one.ranks,
             number.expected.value, number.cited)
        for one in points if one.point is not None
        for number in one.numbers if number.expected.metric == "throughput"
    ]
    if len(sizes) < 2:
        return []
    name = points[0].name.partition("@")[0]
    first = sizes[0]
    values = [
        {"ranks": size.devices, "rate": rate, "what": what}
        for size in sizes
        for what, rate in ((size.series, size.rate),
                           ("perfect scaling", first.rate * size.devices / first.devices))
    ]
    unit = points[0].numbers[0].expected.unit
    spec = {
        "height": 280, "data": {"values": values},
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": encoding("ranks", "quantitative", "ranks",
                          scale={"type": "log", "base": 2}),
            "y": encoding("rate", "quantitative", unit, scale={"type": "log"}),
            "color": encoding("what", "nominal", legend={"title": None}, scale={
                "domain": [first.series, "perfect scaling"]}),
            "strokeDash": encoding("what", "nominal", legend=None, scale={
                "domain": [first.series, "perfect scaling"], "range": [[1, 0], [4, 4]]}),
        },
    }
    return [Plot(
        f"scaling-{name.replace('/', '-')}", spec,
        f"{unit} of {name} on {first.devices} to {sizes[-1].devices} ranks, beside perfect scaling"
        f" from the first: {sizes[-1].rate:,.0f} of"
        f" {first.rate * sizes[-1].devices / first.devices:,.0f} at the last.",
        f"Source: {first.source}.",
        ["ranks:", f"{unit}:", "speed-up:", "efficiency:", "source"],
        [[size.devices, f"{size.rate:,.10g}", f"{speedup(first, size):.2f}",
          f"{speedup(first, size) * first.devices / size.devices:.1%}",
          size.source] for size in sizes],
    )]


def speedup(first: Size, size: Size) -> float:
    """Return how many times as fast a size is as the first one."""
    return size.rate / first.rate


def series_of(sources: Sources) -> dict[str, list[Size]]:
    """Return all sizes of experiments that were run at several, by what the reader calls them."""
    found: dict[str, list[Size]] = {}
    for name, points in sources.recipes.items():
        sizes = [
            Size(name, one.ranks, number.expected.value, number.cited)
            for one in points if one.point is not None
            for number in one.numbers if number.expected.metric == "throughput"
        ]
        if len(sizes) > 1:
            found[name] = sizes
    for hardware in ("v100", "a100"):  # one and eight of them are recipes of their own
        pair = [f"resnet-imagenet/{hardware}x{count}-throughput" for count in (1, 8)]
        if all(name in sources.standings for name in pair):
            label = f"resnet-imagenet/{hardware}x1 and x8, mixed precision"
            found[label] = [
                Size(label, one.ranks, one.numbers[0].expected.value, one.numbers[0].cited)
                for one in (sources.standings[name] for name in pair)
            ]
    return found


def speedups(sources: Sources, *, efficiency: bool) -> Plot:
    """Return speed-up, or efficiency, of every experiment that was run at several sizes."""
    rows, values = [], []
    for label, sizes in series_of(sources).items():
        for size in sizes:
            gain = speedup(sizes[0], size)
            part = gain * sizes[0].devices / size.devices
            values.append({"ranks": size.devices, "speed-up": gain, "efficiency": part,
                           "experiment": label})
            rows.append([label, size.devices, f"{size.rate:,.10g}", f"{gain:.2f}", f"{part:.1%}",
                         size.source])
    what = "efficiency" if efficiency else "speed-up"
    y = (encoding(what, "quantitative", "efficiency", axis={"format": "%"},
                  scale={"domain": [0, 1.05]}) if efficiency
         else encoding(what, "quantitative", "times as fast as the first", scale={
             "type": "log", "base": 2}))
    spec = {
        "height": 300, "data": {"values": values}, "mark": {"type": "line", "point": True},
        "encoding": {
            "x": encoding("ranks", "quantitative", "devices or ranks",
                          scale={"type": "log", "base": 2}),
            "y": y, "color": encoding("experiment", "nominal", legend={
                "title": None, "orient": "bottom", "columns": 1}),
        },
    }
    worst = min(values, key=lambda value: float(str(value["efficiency"])))
    return Plot(
        what, spec,
        f"{what.capitalize()} over the number of devices for {len(series_of(sources))} experiments;"
        f" the lowest efficiency is {float(str(worst['efficiency'])):.0%}, of"
        f" {worst['experiment']} on {worst['ranks']}.",
        "Each against its own smallest size; sources and years are in the table.",
        ["experiment", "ranks:", "img/s:", "speed-up:", "efficiency:", "source"], rows,
    )


class Rate(NamedTuple):
    """How fast ResNet-50 trains on something, and who says so."""

    hardware: str
    rate: float
    number: str
    source: str
    recipe: str = ""

    @property
    def text(self) -> str:
        """The rate as people write it."""
        return f"{self.rate:,.1f}" if self.rate < 100 else f"{self.rate:,.10g}"


def _expected(sources: Sources) -> Iterator[Rate]:
    """Yield what recipes of ResNet-50 on up to eight devices expect."""
    for one in sources.standings.values():
        args = one.file.recipe.args
        if args.get("model") != "resnet50" or one.ranks > 8:
            continue
        label = f"{one.ranks} x {one.hardware.removeprefix('Tesla ')}, {args['precision']}"
        label += ", synthetic" if args.get("synthetic") else ""
        for number in one.numbers:
            if number.expected.metric == "throughput":
                whose = "published" if number.date is None else "measured here"
                yield Rate(label, number.expected.value, whose, number.cited, one.name)


def _published(sources: Sources) -> Iterator[Rate]:
    """Yield the rates of single GPUs that no recipe expects."""
    for figure in sources.published.figures.values():
        if figure.unit == "img/s" and figure.what.endswith("per GPU"):
            source = sources.published.sources[figure.source]
            label = figure.what.removeprefix("ResNet-50 on an ").removesuffix(", per GPU")
            yield Rate(f"1 x {label}", figure.value, "published", f"{source.title} ({source.year})")


def _measured(sources: Sources) -> Iterator[Rate]:
    """Yield what the newest benchmark here has measured on synthetic images."""
    for piece in sources.shelf.benchmarks.get("resnet_cpu", []):
        for rate in piece.content.rates:
            if rate.name == "ours, bf16, synthetic":
                machine = piece.content.machine.machine
                yield Rate(f"{machine.cores} cores of {machine.processor}, bf16, synthetic",
                           rate.median, "measured here", f"{piece.path}, {piece.content.day}")
                return


def throughput(sources: Sources) -> Plot:
    """Return how fast ResNet-50 trains, by hardware: published, and measured here."""
    found = [*_expected(sources), *_published(sources), *_measured(sources)]
    found.sort(key=lambda one: -one.rate)
    values = [
        {"hardware": one.hardware, "img/s": one.rate, "number": one.number, "source": one.source,
         "text": one.text} for one in found
    ]
    color = encoding("number", "nominal", legend={"title": None})
    spec = {
        "height": {"step": 24}, "data": {"values": values},
        "encoding": {
            "y": encoding("hardware", "nominal", axis={"title": None, "labelLimit": 260},
                          sort=None),
            "x": encoding("img/s", "quantitative", "images per second",
                          scale={"type": "log", "domain": [5, 60000]},
                          axis={"values": [10, 100, 1000, 10000]}),
        },
        "layer": [
            {"mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
             "encoding": {"color": color, "shape": color, "tooltip": [
                 encoding(key, "nominal") for key in ("hardware", "text", "source")]}},
            {"mark": {"type": "text", "align": "left", "dx": 9},
             "encoding": {"text": {"field": "text"}}},
        ],
    }
    return Plot(
        "throughput", spec,
        f"Images per second of ResNet-50 in training on {len(found)} machines, on a logarithmic"
        f" axis: from {found[-1].text} on {found[-1].hardware} to {found[0].text} on"
        f" {found[0].hardware}.",
        "ResNet-50 in training, ImageNet's size of images; sources and years are in the table.",
        ["hardware, precision", "img/s:", "number", "source", "recipe"],
        [[one.hardware, one.text, one.number, one.source,
          one.recipe and f"`{one.recipe}`"] for one in found],
    )
