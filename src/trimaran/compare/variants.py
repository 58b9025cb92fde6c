"""Compare the variants of an app.

The comparison has times, speed-ups, the metric after each epoch, the bytes that ranks send, and the
differences of the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from trimaran import paths
from trimaran.compare import code_difference, result
from trimaran.compare.sources import Side
from trimaran.recipes.cards import Card, Variants
from trimaran.report import variants as of_runs
from trimaran.report.variants import RunVariant


def compare(groups: Mapping[str, Sequence[Side]]) -> result.Variants | None:
    """Return the results of each variant that the groups used; None if the app has no variants.

    A group is left out if its variant is not known, or if its runs used different variants.

    Args:
        groups: name of a group -> runs of the group.

    Raises:
        UsageError: a source file of the app, whose lines are compared, is not valid Python.
    """
    first = next(iter(groups.values()))[0]
    card = of_runs.current(first.app, first.card)
    if card.variants is None:
        return None
    found = [
        _variant(group, name, members, card.variants)
        for group, members in groups.items()
        if (name := _name(members, card.variants)) is not None
    ]
    if len({one.name for one in found}) < 2:
        return None
    values = card.variants
    return result.Variants(
        option=values.option, per_epoch=_quantity(card, values.per_epoch),
        time=_quantity(card, values.time), sent=_quantity(card, values.sent),
        groups=[_against(found[0], one, paths.app(first.app)) for one in found],
    )


def _name(members: Sequence[Side], variants: Variants) -> str | None:
    """Return the name of the variant that the runs of a group used.

    Return None if it is unknown, or if the runs used different variants.
    """
    names = {of_runs.name_of(side.variant.arguments, variants)
             for side in members if side.variant is not None}
    return names.pop() if len(names) == 1 else None


def _quantity(card: Card, name: str) -> result.Quantity:
    metric = card.metrics[name]
    return result.Quantity(metric=name, unit=metric.unit, digits=metric.digits)


def _variant(
    group: str, name: str, members: Sequence[Side], variants: Variants
) -> result.Variant:
    """Return the results of a variant, except the speed-up and the number of changed lines of code.

    These two numbers are relative to the first variant, and are added later.
    """
    runs = [side.variant for side in members if side.variant is not None]
    times = [
        median(late) for run in runs
        if (late := [one.time for one in run.epochs if one.epoch > 1 and one.time is not None])
    ]
    sent = [run.sent for run in runs if run.sent is not None]
    return result.Variant(
        group=group, name=name, ranks=members[0].ranks, times=times,
        time=fmean(times) if times else None, speedup=None, epochs=_means(runs),
        sent=fmean(sent) if sent else None,
        file=variants.files.get(str(runs[0].arguments[variants.option])), lines=None,
    )


def _means(runs: Sequence[RunVariant]) -> list[result.Epoch]:
    """Return the mean time and metric of the runs after each epoch that all runs report.

    Runs that report no epochs, such as evidence of older versions, are ignored.
    """
    reported = [
        {one.epoch: (one.at, one.value) for one in run.epochs if one.value is not None}
        for run in runs if run.epochs
    ]
    common = set.intersection(*map(set, reported)) if reported else set()
    return [
        result.Epoch(epoch=epoch, seconds=fmean(one[epoch][0] for one in reported),
                     value=fmean(one[epoch][1] for one in reported))
        for epoch in sorted(common)
    ]


def _against(base: result.Variant, one: result.Variant, app: Path) -> result.Variant:
    """Return the variant `one` with its speed-up and number of changed lines relative to `base`."""
    speedup = lines = None
    if base.time is not None and one.time:
        speedup = base.time / one.time
    if base.file is not None and one.file is not None:
        files = app / base.file, app / one.file
        if all(file.is_file() for file in files):
            lines = len(code_difference.changed_lines(*files))
    return one.model_copy(update={"speedup": speedup, "lines": lines})
