"""Plot published and measured scaling: experiments on several numbers of devices, called sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from generator.measured import METRIC, rates_of
from generator.plots import Lines, Plot
from generator.recipe_status import RecipeStatus
from generator.sources import Sources
from trimaran.report import charts, panels
from trimaran.report.panels import Panel, Point

INK = 6
"""Number of the text colour in the palette of the plots; perfect scaling is drawn in it."""


@dataclass(frozen=True)
class Size:
    """The rate of an experiment on one number of devices.

    Attributes:
        devices: number of devices.
        rate: the rate as a number.
        text: the rate as it appears in a table.
        source: the source of the rate, followed by its date if it has one.
    """

    devices: int
    rate: float
    text: str
    source: str


@dataclass(frozen=True)
class Line:
    """The rates of an experiment at several sizes (numbers of devices); all have the same origin.

    Attributes:
        experiment: name of the experiment for readers.
        origin: `published`, or the machine of the measurement.
        unit: unit of the rates.
        sizes: the sizes, the smallest first.
        first: size to which speed-ups refer: the smallest size in `sizes`. If `sizes` has only one
            size, `first` is the smallest size with an expected rate in the recipe.
        against: text for `first` in a table.
    """

    experiment: str
    origin: str
    unit: str
    sizes: Sequence[Size]
    first: Size
    against: str

    def speedup(self, size: Size) -> float:
        """Return the rate at a size (number of devices) divided by the rate at the size `first`."""
        return size.rate / self.first.rate

    def efficiency(self, size: Size) -> float:
        """Return the speed-up of a size divided by the speed-up of perfect scaling."""
        return self.speedup(size) * self.first.devices / size.devices


def lines_of(experiment: str, points: Sequence[RecipeStatus]) -> list[Line]:
    """Return the lines in the plot of an experiment: expected rates, then each machine's rates.

    The rates of a machine are the newest ones for each number of devices. The result is empty
    if all rates are for the same number of devices.
    """
    expected, ran = _expected(points), _ran(points)
    sizes = {size.devices for by_devices in (*expected.values(), *ran.values())
             for size in by_devices}
    if len(sizes) < 2:
        return []
    unit = points[0].file.card.card.metrics[METRIC].unit
    lines = [Line(experiment, origin, unit, own, own[0], str(own[0].devices))
             for origin, own in expected.items()]
    for origin, own in ran.items():
        if len(own) > 1:
            lines.append(Line(experiment, origin, unit, own, own[0], str(own[0].devices)))
        elif expected:
            base = lines[0]
            lines.append(Line(experiment, origin, unit, own, base.first,
                              f"{base.origin}, {base.first.devices}"))
    return lines


def _expected(points: Sequence[RecipeStatus]) -> dict[str, list[Size]]:
    """Return the expected rates of recipes by their origin, "published" or "measured before".

    Each rate belongs to a size, which is the number of devices.
    """
    found: dict[str, list[Size]] = {}
    for one in points:
        for number in one.numbers:
            if number.expected.metric == METRIC:
                value = number.expected.value
                size = Size(one.devices, value, f"{value:,.10g}", number.cited)
                origin = "published" if number.date is None else "measured before"
                found.setdefault(origin, []).append(size)
    return found


def _ran(points: Sequence[RecipeStatus]) -> dict[str, list[Size]]:
    """Return the measured rates: kind of device -> rate for each number of devices, in order."""
    found: dict[str, dict[int, Size]] = {}
    measured = [ran for one in points for ran in rates_of(one)]
    several = len({ran.version for ran in measured}) > 1
    for ran in measured:
        size = Size(ran.devices, ran.rate, ran.shown(ran.rate), ran.cited)
        origin = f"measured on {ran.device}" + (f", {ran.software}" if several else "")
        found.setdefault(origin, {}).setdefault(ran.devices, size)
    return {origin: [sizes[devices] for devices in sorted(sizes)]
            for origin, sizes in found.items()}


def _drawn(label: str, values: Iterable[tuple[int, float]], color: int) -> panels.Line:
    """Return a line to draw through points (number of devices, value)."""
    points = [Point(devices, 0, value) for devices, value in values]
    return panels.Line(label, points, color % charts.COLORS, label)


def scaling_of(points: Sequence[RecipeStatus]) -> list[Plot]:
    """Return a plot of a recipe's rates beside perfect scaling; no plot if it has only one size."""
    name = points[0].name.partition("@")[0]
    lines = lines_of(name, points)
    if not lines:
        return []
    line, unit, devices = lines[0], lines[0].unit, _devices(points)
    first, last = line.first, line.sizes[-1]
    perfect = {size.devices: first.rate * size.devices / first.devices
               for one in lines for size in one.sizes}
    drawn = [_drawn("perfect scaling", sorted(perfect.items()), INK)]
    drawn += [
        _drawn(one.origin, [(size.devices, size.rate) for size in one.sizes], color)
        for color, one in enumerate(lines)
    ]
    return [Plot(
        f"scaling-{name.replace('/', '-')}",
        Lines(Panel(unit, "log", drawn), unit=devices, doubling=True),
        f"{unit} of {name} on {line.sizes[0].devices} to {last.devices} {devices}, beside"
        f" perfect scaling from the first: {last.rate:,.0f} of {perfect[last.devices]:,.0f} at the"
        " last.",
        f"Source: {first.source}.",
        ["numbers", *_head(devices)],
        [[one.origin, *_row(one, size)] for one in lines for size in one.sizes],
    )]


def _devices(points: Sequence[RecipeStatus]) -> str:
    """Return the name of the devices of a recipe: "GPUs", or "ranks" if ranks have no own GPU."""
    resources = points[0].file.recipe.resources
    return "GPUs" if resources.gpus_per_task and not resources.mps else "ranks"


def _head(devices: str) -> list[str]:
    return [f"{devices}:", "rate:", "unit", "speed-up:", "efficiency:", "against:", "source"]


def _row(line: Line, size: Size) -> list[object]:
    return [size.devices, size.text, line.unit, f"{line.speedup(size):.2f}",
            f"{line.efficiency(size):.1%}", line.against, size.source]


def series_of(sources: Sources) -> list[Line]:
    """Return the plotted line of each experiment that was run at several sizes."""
    found = [line for name, points in sources.recipes.items() for line in lines_of(name, points)]
    for hardware in ("v100", "a100"):  # 1 and 8 devices are separate recipes
        pair = [f"resnet-imagenet/{hardware}x{count}-throughput" for count in (1, 8)]
        if all(name in sources.standings for name in pair):
            found += lines_of(f"resnet-imagenet/{hardware}x1 and x8, mixed precision",
                              [sources.standings[name] for name in pair])
    return found


def speedups(sources: Sources, *, efficiency: bool) -> Plot:
    """Return a plot of the speed-up or efficiency of each experiment by its number of devices."""
    lines = series_of(sources)
    shown = [(line, size) for line in lines for size in line.sizes]
    drawn = [
        _drawn(f"{line.experiment}, {line.origin}",
               [(size.devices, 100 * line.efficiency(size) if efficiency else line.speedup(size))
                for size in line.sizes], color)
        for color, line in enumerate(lines)
    ]
    what = "efficiency" if efficiency else "speed-up"
    panel = (Panel("efficiency, %", "from-zero", drawn) if efficiency
             else Panel("speed-up: times as fast as the smallest size", "log", drawn))
    lowest, at = min(shown, key=lambda one: one[0].efficiency(one[1]))
    experiments = {line.experiment for line in lines}
    return Plot(
        what, Lines(panel, unit="GPUs or ranks", doubling=True),
        f"{what.capitalize()} over the number of devices for {len(experiments)} experiments;"
        f" the lowest efficiency is {lowest.efficiency(at):.0%}, of"
        f" {lowest.experiment} on {at.devices}.",
        "Each against its own smallest size, where a machine has but one against the published"
        " one; sources and years are in the table.",
        ["experiment", "numbers", *_head("GPUs or ranks")],
        [[line.experiment, line.origin, *_row(line, size)] for line, size in shown],
    )
