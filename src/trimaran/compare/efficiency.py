"""Compute speed-up and scaling efficiency of groups of runs, and judge the expected efficiency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimaran.compare import result
from trimaran.compare.sources import Side
from trimaran.recipes.expectation import Efficiency
from trimaran.verdict.metrics import Outcome

Groups = Mapping[str, Sequence[Side]]


def scaling(groups: Groups, metrics: Sequence[result.Metric]) -> list[result.Scale]:
    """Return throughput, speed-up and scaling efficiency of each group of runs.

    The result is empty unless the groups differ in the number of devices.
    """
    first, *_ = next(iter(groups.values()))
    metric = next((one for one in metrics if one.metric == first.card.rate), None)
    if metric is None:
        return []
    means = {summary.group: summary.mean for summary in metric.groups}
    known = sorted(
        (first.devices, first.ranks, first.nodes, name) for name, (first, *_) in groups.items()
        if first.devices is not None and first.ranks is not None and means.get(name, 0) > 0
    )
    if len({devices for devices, *_ in known}) < 2:
        return []
    base = known[0][-1]
    rates = {name: means[name] / devices for devices, _, _, name in known}

    def expected(name: str) -> result.ExpectedEfficiency | None:
        published = groups[name][0].efficiency
        if published is None:
            return None
        other = next((one for devices, _, _, one in known if devices == published.over
                      and _series(groups[one]) == _series(groups[name])), None)
        measured = None if other is None else rates[name] / rates[other]
        runs = [*groups[name], *(groups[other] if other else ())]
        return _judge(published, measured, is_judged=all(
            _is_judged(run, metric) for run in runs))

    return [
        result.Scale(
            group=name, nodes=nodes, ranks=ranks, devices=devices, metric=metric.metric,
            rate=means[name], unit=metric.unit, digits=metric.digits,
            speedup=means[name] / means[base], efficiency=rates[name] / rates[base],
            expected=expected(name),
        )
        for devices, ranks, nodes, name in known
    ]


def _series(group: Sequence[Side]) -> str:
    return group[0].experiment.recipe.partition("@")[0]


def _is_judged(run: Side, metric: result.Metric) -> bool:
    """Return whether the verdict of `run` compares its throughput with a reference."""
    row = run.row(metric.metric, metric.at)
    return row is not None and row.outcome != "NO REFERENCE"


def _judge(
    published: Efficiency, measured: float | None, *, is_judged: bool
) -> result.ExpectedEfficiency:
    outcome: Outcome = "NO REFERENCE"
    if measured is not None and is_judged:
        outcome = "PASS" if measured >= published.lowest else "FAIL"
    return result.ExpectedEfficiency(
        over=published.over, value=published.value, lowest=published.lowest,
        source=published.source, measured=measured, outcome=outcome,
    )
