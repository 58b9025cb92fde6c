"""Show plans, and their comparison with published series, as tables, sentences and a plot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trimaran.plan.prediction import USABLE, Plan, Row
from trimaran.plan.situation import Situation, number
from trimaran.plan.validation import Compared, mean_error
from trimaran.report import charts
from trimaran.report.panels import Line, Panel, Point
from trimaran.report.table import Table

HEAD = ("nodes", "devices", "rate", "speed-up", "efficiency", "hours", "kWh", "cost")


def table(plan: Plan) -> Table:
    """Return the predictions as a table with one row for each number of nodes.

    Columns without any value are left out.
    """
    situation = plan.situation
    rows = [
        [str(row.nodes), str(row.devices), _number(row.throughput), f"{row.speedup:.1f}",
         f"{row.step.efficiency:.0%}", _number(row.hours), _number(row.kilowatt_hours),
         _number(row.cost)]
        for row in plan.rows
    ]
    kept = [at for at in range(len(HEAD)) if any(row[at] for row in rows)]
    return Table(
        f"{situation.recipe_name} on {situation.target_name}, predicted",
        [situation.unit if HEAD[at] == "rate" else HEAD[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
    )


def _number(value: float | None) -> str:
    return "" if value is None else number(value)


def sentences(plan: Plan) -> Iterator[str]:
    """Yield sentences that explain the numbers of a plan: sources, limits and assumptions."""
    situation, base, last = plan.situation, plan.base, plan.rows[-1]
    yield (f"Predicted, not measured: +-{base.uncertainty:.0%}. One"
           f" {situation.hardware.device.name} with {_name(situation)},"
           f" {situation.precision}, {situation.batch:,} samples per step:"
           f" {situation.rated(base.rate)}.")
    if situation.whole is not None:
        yield (f"All devices together have {situation.whole:,} samples per step, whatever their"
               " number.")
    if plan.left_out:
        yield (f"Left out: {', '.join(map(str, plan.left_out))} nodes, whose devices would have"
               f" less than {situation.least:,} samples each.")
    yield f"Rate of one device: {base.source}."
    for place, link in situation.links.items():
        where = "within a node" if place == "within" else "between nodes"
        yield (f"Link {where}: {link.wire.bandwidth / 1e9:.3g} GB/s and"
               f" {link.wire.latency * 1e6:.3g} us per message, {link.source}.")
    yield f"Limit on {last.nodes} node{'s' * (last.nodes > 1)}: {plan.binding}."
    yield from _input(last, situation.unit)
    yield _memory(plan)
    for key, reason in situation.assumed.items():
        yield f"Assumed in the target, {key}: {reason}."
    for key, source in situation.hardware.unchecked.items():
        yield f"Not checked in the target, {key}: {source}."


def _name(situation: Situation) -> str:
    """Return the name of the network for readers.

    It is `APP at SIZE pixels` if the name in `work.json` is only a number, the size of images.
    """
    name, app = situation.network.name, situation.recipe.app
    return f"{app} at {name} pixels" if name.isdecimal() else name


def _input(row: Row, unit: str) -> Iterator[str]:
    feed = row.feed
    text = f"Input: {_number(feed.samples)} {unit} per node, {_number(row.throughput)} in all"
    if not feed.reads:
        yield f"{text}; the recipe's data are synthetic, so nothing is read."
        return
    yield f"{text}; reading and decoding are not part of the prediction."
    if feed.size is None or feed.gigabytes is None:
        yield "Reading: not known, because no size of the packed samples is stated."
    else:
        yield (f"Reading: {feed.gigabytes:.2g} GB/s per node, {feed.gigabytes * row.nodes:.2g} in"
               f" all, with {feed.size.average:,.0f} bytes per sample ({feed.size.source});"
               f" {'; '.join(feed.limits)}.")
    if feed.cores is not None:
        here = "" if feed.cores_here is None else f" of {feed.cores_here}"
        yield f"Decoding: about {_number(feed.cores)} cores{here} per node ({feed.decoding})."
    elif feed.encoded:
        yield "Decoding: not known, because no rate of a core is measured for these samples."


def _memory(plan: Plan) -> str:
    memory, batch = plan.memory, plan.situation.batch
    text = f"Memory of a device: about {memory.gigabytes:.1f} GB"
    if memory.available is None:
        return f"{text}; the target does not state its memory."
    text += f" of {memory.available:g} GB"
    if memory.by_app:
        fits = "" if memory.fits else f", more than {USABLE:.0%} of it"
        return f"{text}{fits}, as the app estimates it for the recipe's own number of ranks."
    if memory.fits:
        return f"{text}."
    if memory.micro_batch is None:
        return (f"{text}, more than {USABLE:.0%} of it; no smaller batch fits: choose a device with"
                " more memory.")
    return (f"{text}, more than {USABLE:.0%} of it; {memory.micro_batch} samples x"
            f" {batch // memory.micro_batch} accumulated fit, with the same global batch.")


def compared(points: Sequence[Compared]) -> Table:
    """Return the comparison with published series as a table.

    The table has one row for each predicted value, that is, for each series and number of devices.
    """
    return Table(
        f"Predicted and published series; mean absolute error {mean_error(list(points)):.1%}",
        ("series", "devices", "published", "predicted", "error"),
        [[one.series.name, str(one.devices), f"{one.published:,.1f} {one.series.unit}",
          f"{one.predicted:,.1f}", f"{one.error:+.1%}"] for one in points],
    )


def comparison(points: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return the comparison of predicted and published values as data for JSON output.

    The list has one entry for each published scaling series and number of devices.
    """
    return [
        {"series": one.series.name, "devices": one.devices, "unit": one.series.unit,
         "published": one.published, "predicted": one.predicted, "error": one.error,
         "sources": one.series.sources, "assumed": one.series.assumed, "note": one.series.note}
        for one in points
    ]


def picture(plan: Plan) -> str:
    """Return an SVG plot of the predicted and the ideal speed-up over the number of devices."""
    ideal = [Point(row.devices, 0, row.devices) for row in plan.rows]
    found = [Point(row.devices, 0, row.speedup) for row in plan.rows]
    panel = Panel("speed-up", "log", [Line("ideal", ideal, 1), Line("predicted", found, 0)])
    situation = plan.situation
    return charts.picture(
        f"Predicted speed-up of {situation.recipe_name} on {situation.target_name}",
        [charts.chart(panel, unit="device", doubling=True)],
    )
