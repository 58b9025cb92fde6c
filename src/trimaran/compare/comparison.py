"""Runs side by side: groups of repeats, their metrics, when they came how far, and scaling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from trimaran.compare import noise, result, sources
from trimaran.compare.noise import METHODS, STRETCHES
from trimaran.compare.result import Comparison
from trimaran.compare.sources import Experiment, Side
from trimaran.errors import UsageError, unknown_name
from trimaran.report import scaling
from trimaran.verdict.rules import Row

Groups = dict[str, list[Side]]

POOLED = ("image", "machine", "recipe-file")
"""In what runs may differ and yet be taken for repeats, if one says so."""


def compare(paths: Sequence[Path], pooled: Sequence[str] = ()) -> tuple[Comparison, Groups]:
    """Compare runs, and return them in their groups, too, for who draws them.

    `paths` are run directories, series of them and files of evidence, in any order; the first
    one's group is what the others are compared with. Repeats may differ in what is `pooled`.

    Raises:
        UsageError: fewer than two, one twice, of several apps, without a metric in common,
            `pooled` has another word; or as `sides.load`.
        RunError: as `sides.load`.
    """
    groups = _grouped([_pooled(side, pooled) for side in _read(paths)])
    first = next(iter(groups.values()))
    metrics = [found for row in _rows(groups) if (found := _metric(row, groups)) is not None]
    if not metrics:
        raise UsageError(
            "the runs have no metric in common: "
            + "; ".join(f"{side.path} has {_known(side)}" for side in _all(groups)),
            hint="what is read at another moment is another number, too",
        )
    return Comparison(
        app=first[0].app,
        runs=[_run(name, group, side) for group, name, side in named(groups)],
        groups=[_group(name, groups) for name in groups],
        metrics=metrics, reached=_reached(groups, metrics), scaling=_scaling(groups, metrics),
        notes=_notes(groups, metrics, pooled),
    ), groups


def _read(given: Sequence[Path]) -> list[Side]:
    # Of a scaling series, its runs.
    paths = [run for path in given for run in scaling.folders(path).values() or [path]]
    if len(paths) < 2:
        raise UsageError("one run alone cannot be compared", hint="name two or more")
    seen: dict[Path, Path] = {}
    for path in paths:
        if (place := path.resolve()) in seen:
            raise UsageError(f"{path} is there twice (as {seen[place]})")
        seen[place] = path
    found = [sources.load(path) for path in paths]
    apps: dict[str, Side] = {}
    for side in found:
        apps.setdefault(side.app, side)
    if len(apps) > 1:
        raise UsageError(
            "the runs are of several apps, which measure different things: "
            + ", ".join(f"{side.path} of {app}" for app, side in apps.items())
        )
    return found


def _pooled(side: Side, words: Sequence[str]) -> Side:
    for word in words:
        if word not in POOLED:
            raise unknown_name("difference", word, POOLED)
    ignored = {word.replace("-", "_"): "any" for word in words}
    return replace(side, experiment=replace(side.experiment, **ignored))


def _grouped(found: Sequence[Side]) -> Groups:
    """Return the runs by experiment: A, B, C and so on.

    Where all are repeats of one experiment, the first stands alone against the others.
    """
    by_experiment: dict[Experiment, list[Side]] = {}
    for side in found:
        by_experiment.setdefault(side.experiment, []).append(side)
    members = list(by_experiment.values())
    if len(members) == 1:
        members = [[found[0]], list(found[1:])]
    return {_letters(number): group for number, group in enumerate(members)}


def _letters(number: int) -> str:
    """Return A to Z, then AA, AB and so on."""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


def named(groups: Groups) -> Iterator[tuple[str, str, Side]]:
    """Yield each run with its group and its name: `A`, or `A1`, `A2` where there are several."""
    for group, members in groups.items():
        for number, side in enumerate(members, start=1):
            yield group, f"{group}{number}" if len(members) > 1 else group, side


def _all(groups: Groups) -> list[Side]:
    return [side for members in groups.values() for side in members]


def _run(name: str, group: str, side: Side) -> result.Run:
    return result.Run(
        name=name, group=group, source=side.path, changed=dict(side.changed),
        started=side.started.strftime("%Y-%m-%d %H:%M %Z"), seconds=side.seconds,
        verdict=side.verdict.outcome,
    )


def _group(name: str, groups: Groups) -> result.Group:
    one, first = groups[name][0], _all(groups)[0]
    return result.Group(
        name=name, runs=[run for group, run, _ in named(groups) if group == name],
        **vars(one.experiment), nodes=one.nodes, ranks=one.ranks,
        unlike=one.experiment.unlike(first.experiment),
    )


def _known(side: Side) -> str:
    return ", ".join(f"{row.metric} ({row.at})" for row in side.verdict.rows) or "none"


def _rows(groups: Groups) -> list[Row]:
    """Return one row of each metric and moment, in the order in which runs have them."""
    found: dict[tuple[str, str], Row] = {}
    for side in _all(groups):
        for row in side.verdict.rows:
            found.setdefault((row.metric, row.at), row)
    return list(found.values())


def _metric(row: Row, groups: Groups) -> result.Metric | None:
    """Return what groups have of a metric; None: the first has it not, or no other has it."""
    values = {
        name: [found.measured for side in members
               if (found := side.row(row.metric, row.at)) and found.measured is not None]
        for name, members in groups.items()
    }
    base, *others = groups
    if not values[base] or not any(values[name] for name in others):
        return None
    return result.Metric(
        metric=row.metric, at=row.at, unit=row.unit,
        digits=about.digits if (about := _all(groups)[0].card.metrics.get(row.metric))
        else row.digits,
        groups=[
            result.Summary(group=name, values=found, mean=fmean(found),
                           deviation=stdev(found) if len(found) > 1 else None)
            for name, found in values.items() if found
        ],
        differences=[
            _difference(row.metric, name, values[base], values[name], groups[base] + groups[name])
            for name in others if values[name]
        ],
    )


def _difference(
    metric: str, group: str, first: Sequence[float], second: Sequence[float],
    members: Sequence[Side],
) -> result.Difference:
    windows = None
    if len(members) == 2 and all(metric in side.windows for side in members):
        windows = (members[0].windows[metric], members[1].windows[metric])
    found = noise.between(first, second, windows)
    mean = fmean(first)
    percent = 100 * found.value / abs(mean) if mean else None
    return result.Difference(group=group, percent=percent, **found._asdict())


def _reached(groups: Groups, metrics: Sequence[result.Metric]) -> list[result.Reach]:
    """Return when each run first came as far as the recipe expects, or else as far as all came."""
    found = []
    for metric in metrics:
        about = _all(groups)[0].card.metrics.get(metric.metric)
        if about is None or about.hardware_bound or metric.at.startswith("median"):
            continue
        if not any(side.curve(metric.metric) for side in _all(groups)):
            continue
        up = about.better == "higher"
        level = _level(metric, groups, up)
        found.append(result.Reach(
            metric=metric.metric, unit=metric.unit, level=level, digits=metric.digits,
            runs=[_arrival(name, side, metric.metric, level, up)
                  for _, name, side in named(groups)],
        ))
    return found


def _level(metric: result.Metric, groups: Groups, up: bool) -> float:
    for side in _all(groups):
        row = side.row(metric.metric, metric.at)
        bound = None if row is None else row.low if up else row.high
        if bound is not None:
            return bound
    values = [value for summary in metric.groups for value in summary.values]
    return min(values) if up else max(values)


def _arrival(name: str, side: Side, metric: str, level: float, up: bool) -> result.Arrival:
    curve = side.curve(metric)
    for step, seconds, value in curve.points if curve else ():
        # The last value of a curve is rounded to fewer digits than that of its verdict.
        if (value >= level if up else value <= level) or math.isclose(value, level, rel_tol=1e-5):
            return result.Arrival(run=name, step=step, seconds=seconds)
    return result.Arrival(run=name, step=None, seconds=None)


def _scaling(groups: Groups, metrics: Sequence[result.Metric]) -> list[result.Scale]:
    """Return the rate of the app over the number of ranks, where groups differ in it."""
    rate = _all(groups)[0].card.rate
    metric = next((one for one in metrics if one.metric == rate), None)
    if metric is None:
        return []
    means = {summary.group: summary.mean for summary in metric.groups}
    known = sorted(
        (members[0].ranks, members[0].nodes, name) for name, members in groups.items()
        if members[0].ranks is not None and means.get(name, 0) > 0
    )
    if len({ranks for ranks, _, _ in known}) < 2:
        return []
    least, _, base = known[0]
    return [
        result.Scale(
            group=name, nodes=nodes, ranks=ranks, metric=metric.metric, rate=means[name],
            unit=metric.unit, digits=metric.digits, speedup=means[name] / means[base],
            efficiency=means[name] / means[base] * least / ranks,
        )
        for ranks, nodes, name in known
    ]


def _notes(groups: Groups, metrics: Sequence[result.Metric], pooled: Sequence[str]) -> list[str]:
    """Return what a reader must know of the numbers: the methods used, and their limits."""
    used = dict.fromkeys(one.method for metric in metrics for one in metric.differences)
    said = [METHODS[method] for method in used]
    judged = sum(one.low is not None for metric in metrics for one in metric.differences)
    if judged > 1:
        said.append(
            f"{judged} differences are judged, each with {noise.CONFIDENT}: of twenty without any"
            " cause, one is expected to look like more than noise."
        )
    if any(one.outcome == "within noise" for metric in metrics for one in metric.differences):
        said.append("Within noise does not mean equal: a difference as large as the ends of the"
                    " interval would not have been seen.")
    base = next(iter(groups.values()))[0].experiment
    if len({side.experiment for side in _all(groups)}) == 1:
        said.append(f"All are repeats of {base.recipe}: the first stands against the others.")
    if STRETCHES in used:
        said.append("Curves of evidence are thinned, and with them the windows that are judged.")
    if pooled:
        said.append(f"As asked, runs that differ in {' or '.join(pooled)} are taken for repeats.")
    if missing := sum(not side.curves for side in _all(groups)):
        said.append(f"{missing} of the runs have no curves: evidence of older versions has none.")
    return said
