"""Compare runs: groups of repeats, their metrics, the time to reach a given value, and scaling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from trimaran.compare import efficiency, noise, result, sources, variant_tables, variants
from trimaran.compare.noise import METHODS, STRETCHES
from trimaran.compare.result import Comparison
from trimaran.compare.sources import Experiment, Side
from trimaran.errors import UsageError, unknown_name
from trimaran.report import scaling
from trimaran.verdict.metrics import Row

Groups = dict[str, list[Side]]

POOLED = ("image", "machine", "recipe-file")
"""Values of the option `--pool`: properties that may differ between repeats of one experiment."""


def compare(paths: Sequence[Path], pooled: Sequence[str] = ()) -> tuple[Comparison, Groups]:
    """Compare runs.

    Args:
        paths: run directories, scaling series and files of evidence. The group of the first run is
            the baseline of the other groups.
        pooled: properties (see `POOLED`) in which the repeats of an experiment may differ.

    Returns:
        The comparison; and the runs of each group, whose curves are drawn on the page.

    Raises:
        UsageError: the paths contain fewer than two runs, one run twice, runs of several apps, or
            no common metric; a path is not a run or evidence that can be compared; or `pooled`
            has an unknown property.
        RunError: the files of a run contradict each other.
    """
    groups = _grouped([_pooled(side, pooled) for side in _read(paths)])
    first = next(iter(groups.values()))
    metrics = [metric for row in _rows(groups) if (metric := _metric(row, groups)) is not None]
    if not metrics:
        raise UsageError(
            "the runs have no metric in common: "
            + "; ".join(f"{side.path} has {_known(side)}" for side in _all(groups)),
            code="runs-incomparable",
            hint="a metric is common only if it is read at the same moment, such as `best`",
        )
    compared = variants.compare(groups)
    return Comparison(
        app=first[0].app,
        runs=[_run(name, group, side) for group, name, side in named(groups)],
        groups=[_group(name, groups) for name in groups],
        metrics=metrics, reached=_reached(groups, metrics),
        scaling=efficiency.scaling(groups, metrics),
        variants=compared,
        notes=[*_notes(groups, metrics, pooled),
               *(variant_tables.notes(compared, len(groups)) if compared else [])],
    ), groups


def _read(given: Sequence[Path]) -> list[Side]:
    # A scaling series is replaced by its runs.
    paths = [run for path in given for run in scaling.folders(path).values() or [path]]
    if len(paths) < 2:
        raise UsageError("compare needs at least two runs", code="argument-missing",
                         hint="name two or more run directories or files of evidence")
    seen: dict[Path, Path] = {}
    for path in paths:
        if (place := path.resolve()) in seen:
            raise UsageError(f"{path} is the same run as {seen[place]}", code="run-repeated",
                             hint="name each run once")
        seen[place] = path
    sides = [sources.load(path) for path in paths]
    apps: dict[str, Side] = {}
    for side in sides:
        apps.setdefault(side.app, side)
    if len(apps) > 1:
        raise UsageError(
            "the runs are of several apps, which measure different things: "
            + ", ".join(f"{side.path} of {app}" for app, side in apps.items()),
            code="runs-incomparable", hint="name runs of one app",
        )
    return sides


def _pooled(side: Side, words: Sequence[str]) -> Side:
    for word in words:
        if word not in POOLED:
            raise unknown_name("difference", word, POOLED)
    ignored = {word.replace("-", "_"): "any" for word in words}
    return replace(side, experiment=replace(side.experiment, **ignored))


def _grouped(sides: Sequence[Side]) -> Groups:
    """Return the runs in groups called A, B, C and so on; a group has all runs of one experiment.

    If all runs are repeats of one experiment, the first run is group A and the others are group B.
    """
    by_experiment: dict[Experiment, list[Side]] = {}
    for side in sides:
        by_experiment.setdefault(side.experiment, []).append(side)
    members = list(by_experiment.values())
    if len(members) == 1:
        members = [[sides[0]], list(sides[1:])]
    return {_letters(number): group for number, group in enumerate(members)}


def _letters(number: int) -> str:
    """Return the name of the group `number`: A for 0, B for 1, AA for 26, and so on."""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)


def named(groups: Groups) -> Iterator[tuple[str, str, Side]]:
    """Yield for each run the name of its group, the name of the run, and the run itself.

    The only run of a group A is called A. If the group has several runs, they are called A1, A2 and
    so on.
    """
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
    side, first = groups[name][0], _all(groups)[0]
    return result.Group(
        name=name, runs=[run for group, run, _ in named(groups) if group == name],
        **vars(side.experiment), nodes=side.nodes, ranks=side.ranks,
        unlike=side.experiment.unlike(first.experiment),
    )


def _known(side: Side) -> str:
    return ", ".join(f"{row.metric} ({row.at})" for row in side.verdict.rows) or "none"


def _rows(groups: Groups) -> list[Row]:
    """Return the rows of all verdicts, one for each metric and moment of the training.

    An example of a moment is `end`. If several runs have a row for the same metric and moment, the
    row of the first run is returned.
    """
    rows: dict[tuple[str, str], Row] = {}
    for side in _all(groups):
        for row in side.verdict.rows:
            rows.setdefault((row.metric, row.at), row)
    return list(rows.values())


def _metric(row: Row, groups: Groups) -> result.Metric | None:
    """Return the values of a metric in all groups and their differences from the first group.

    Return None if the first group does not have the metric, or if no other group has it.
    """
    values = {
        name: [own.measured for side in members
               if (own := side.row(row.metric, row.at)) and own.measured is not None]
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
            result.Summary(group=name, values=measured, mean=fmean(measured),
                           deviation=stdev(measured) if len(measured) > 1 else None)
            for name, measured in values.items() if measured
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
    difference = noise.between(first, second, windows)
    mean = fmean(first)
    percent = 100 * difference.value / abs(mean) if mean else None
    return result.Difference(group=group, percent=percent, **difference._asdict())


def _reached(groups: Groups, metrics: Sequence[result.Metric]) -> list[result.Reach]:
    """Return, for each metric with curves, the step and time at which each run reached a "level".

    The level is a value of the metric: the bound that the recipe expects, or else the worst final
    value of all runs.
    """
    reached = []
    for metric in metrics:
        about = _all(groups)[0].card.metrics.get(metric.metric)
        if about is None or about.hardware_bound or metric.at.startswith("median"):
            continue
        if not any(side.curve(metric.metric) for side in _all(groups)):
            continue
        up = about.better == "higher"
        level = _level(metric, groups, up)
        reached.append(result.Reach(
            metric=metric.metric, unit=metric.unit, level=level, digits=metric.digits,
            runs=[_arrival(name, side, metric.metric, level, up)
                  for _, name, side in named(groups)],
        ))
    return reached


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
        # A curve has fewer digits than the verdict, so its last value may miss the level.
        if (value >= level if up else value <= level) or math.isclose(value, level, rel_tol=1e-5):
            return result.Arrival(run=name, step=step, seconds=seconds)
    return result.Arrival(run=name, step=None, seconds=None)


def _notes(groups: Groups, metrics: Sequence[result.Metric], pooled: Sequence[str]) -> list[str]:
    """Return notes for the reader: the statistical methods that were used, and their limits."""
    differences = [difference for metric in metrics for difference in metric.differences]
    used = dict.fromkeys(difference.method for difference in differences)
    notes = [METHODS[method] for method in used]
    judged = sum(difference.low is not None for difference in differences)
    if judged > 1:
        notes.append(
            f"{judged} differences are judged, each at {noise.CONFIDENT} confidence: of twenty"
            " differences that are pure chance, one is expected to be called more than noise."
        )
    if any(difference.outcome == "within noise" for difference in differences):
        notes.append("Within noise does not mean equal: these runs cannot show a difference that"
                     " lies within the interval.")
    base = next(iter(groups.values()))[0].experiment
    if len({side.experiment for side in _all(groups)}) == 1:
        notes.append(f"All runs are repeats of {base.recipe}: the first run is compared with the"
                     " others.")
    if STRETCHES in used:
        notes.append("Evidence keeps only some points of a curve, and so only some windows.")
    if pooled:
        notes.append(f"--pool: runs that differ in {' or '.join(pooled)} count as repeats.")
    if missing := sum(not side.curves for side in _all(groups)):
        notes.append(f"{missing} runs have no curves: evidence of older versions contains none.")
    return notes
