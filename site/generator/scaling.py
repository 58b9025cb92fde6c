"""The plots of speed: one size after another, machine beside machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from generator.plots import Plot, encoding
from generator.sources import Sources
from trimaran.evidence.standing import Number, Standing


@dataclass(frozen=True)
class Size:
    """One size of an experiment: how many, how fast, and by whom that was said."""

    series: str
    devices: int
    rate: float
    source: str
    dated: str

    @property
    def published(self) -> bool:
        """Whether it is of a publication."""
        return len(self.dated) == 4


def size_of(series: str, devices: int, number: Number) -> Size:
    """Return what a recipe's number says of a size."""
    dated = str(number.date or number.year)
    return Size(series, devices, number.expected.value, number.source, dated)


def ranks(one: Standing) -> int:
    """Return how many ranks, each on a device or on cores of its own, a recipe starts."""
    wanted = one.file.recipe.resources
    return wanted.nodes * wanted.tasks_per_node


def scaling_of(points: Sequence[Standing]) -> list[Plot]:
    """Return the plot of a series: its rate beside that of perfect scaling from its first point."""
    sizes = [
        size_of("published" if number.date is None else "measured", ranks(one), number)
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
            "color": encoding("what", "nominal", scale={
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
        f"Source: {first.source} ({first.dated}).",
        ["ranks:", f"{unit}:", "speed-up:", "efficiency:", "source"],
        [[size.devices, f"{size.rate:,.10g}", f"{speedup(first, size):.2f}",
          f"{speedup(first, size) * first.devices / size.devices:.1%}",
          f"{size.source} ({size.dated})"] for size in sizes],
    )]


def speedup(first: Size, size: Size) -> float:
    """Return how many times as fast a size is as the first one."""
    return size.rate / first.rate


def series_of(sources: Sources) -> dict[str, list[Size]]:
    """Return all sizes of experiments that were run at several, by what the reader calls them."""
    found: dict[str, list[Size]] = {}
    for name, points in sources.recipes.items():
        sizes = [
            size_of(name, ranks(one), number)
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
                size_of(label, ranks(sources.standings[name]), sources.standings[name].numbers[0])
                for name in pair
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
                         f"{size.source} ({size.dated})"])
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
                "orient": "bottom", "columns": 1}),
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


def throughput(sources: Sources) -> Plot:
    """Return how fast ResNet-50 trains, by hardware: published, and measured here."""
    found = [
        (f"{one.target.summary.rstrip('.')} ({one.file.recipe.args.get('precision', 'auto')})",
         number.expected.value, "published" if number.date is None else "measured here",
         number.source, str(number.date or number.year), one.name)
        for one in sources.standings.values()
        if one.file.recipe.args.get("model") == "resnet50" and ranks(one) <= 8
        for number in one.numbers if number.expected.metric == "throughput"
    ]
    for figure in sources.published.figures.values():
        if figure.unit == "img/s" and "per GPU" in figure.what:
            source = sources.published.sources[figure.source]
            found.append((figure.what.removeprefix("ResNet-50 on "), figure.value, "published",
                          source.title, str(source.year), ""))
    found += _measured(sources)
    found.sort(key=lambda row: -row[1])
    values = [
        {"hardware": hardware, "img/s": rate, "number": what, "source": source, "year": year}
        for hardware, rate, what, source, year, _ in found
    ]
    spec = {
        "height": {"step": 26}, "data": {"values": values},
        "encoding": {
            "y": encoding("hardware", "nominal", axis={"title": None, "labelLimit": 330},
                          sort=None),
            "x": encoding("img/s", "quantitative", "images per second",
                          scale={"type": "log", "domainMin": 5}),
        },
        "layer": [
            {"mark": {"type": "point", "filled": True, "size": 90},
             "encoding": {"color": encoding("number", "nominal"),
                          "shape": encoding("number", "nominal"),
                          "tooltip": [encoding(key, "nominal") for key in values[0]]}},
            {"mark": {"type": "text", "align": "left", "dx": 9},
             "encoding": {"text": {"field": "img/s", "format": ",.4~g"}}},
        ],
    }
    return Plot(
        "throughput", spec,
        f"Images per second of ResNet-50 in training on {len(found)} machines, on a logarithmic"
        f" axis: from {found[-1][1]:,.0f} on {found[-1][0]} to {found[0][1]:,.0f} on"
        f" {found[0][0]}.",
        "ResNet-50 in training, ImageNet's size of images; sources and years are in the table.",
        ["hardware (precision)", "img/s:", "number", "source", "recipe"],
        [[hardware, f"{rate:,.4g}" if rate < 100 else f"{rate:,.10g}", what,
          f"{source} ({year})", name and f"`{name}`"]
         for hardware, rate, what, source, year, name in found],
    )


def _measured(sources: Sources) -> list[tuple[str, float, str, str, str, str]]:
    """Return the rates of ResNet-50 that benchmarks here have measured on synthetic images."""
    found = []
    for piece in sources.shelf.benchmarks.get("resnet_cpu", []):
        for rate in piece.content.rates:
            if rate.name == "ours, bf16, synthetic":
                machine = piece.content.machine.machine
                found.append((f"{machine.text.partition(' (')[0]} (bf16)", rate.median,
                              "measured here", f"benchmarks/resnet_cpu.py, {piece.path}",
                              str(piece.content.day), ""))
    return found[:1]
