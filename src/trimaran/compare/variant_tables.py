"""Show the results of an app's variants as a table, notes and drawings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trimaran.compare.result import Epoch, Variant, Variants
from trimaran.report import charts
from trimaran.report import rows as row_charts
from trimaran.report.panels import MOST_KEPT, Line, Panel, Point, evenly
from trimaran.report.rows import Dot, Row

MOST_EPOCHS = 5
"""Maximum number of epochs for which the table shows the value of the metric."""


def columns(variants: Variants) -> list[str]:
    """Return the column headings of the table of variants."""
    option, *others = numbers(variants)[0]
    shown = ", ".join(str(epoch) for epoch in shown_epochs(variants))
    after = f", after epoch{'s' if ',' in shown else ''} {shown}" if shown else ""
    return [option, "group", *others, f"{variants.per_epoch.title}{after}"]


def rows(variants: Variants) -> list[list[str]]:
    """Return the rows of the table of variants, one for each variant."""
    shown = shown_epochs(variants)
    return [
        [name, one.group, *others, ", ".join(values(variants, one.epochs, shown)) or "-"]
        for one, (name, *others) in zip(variants.groups, numbers(variants)[1], strict=True)
    ]


def numbers(variants: Variants) -> tuple[list[str], list[list[str]]]:
    """Return column headings and rows of a shorter table of variants.

    This table lacks the column of groups and the column with the metric after each epoch.
    """
    head = [variants.option, "ranks", variants.time.title, "speed-up", variants.sent.title,
            "lines that differ"]
    return head, [
        [one.name, "-" if one.ranks is None else str(one.ranks), variants.time.text(one.time),
         "-" if one.speedup is None else f"{one.speedup:.2f}", variants.sent.text(one.sent),
         "-" if one.lines is None else str(one.lines)]
        for one in variants.groups
    ]


def shown_epochs(variants: Variants) -> list[int]:
    """Return the epochs that the table shows.

    If there are more than `MOST_EPOCHS` epochs, they are selected evenly, including first and last.
    """
    known = sorted({one.epoch for variant in variants.groups for one in variant.epochs})
    return evenly(known, MOST_EPOCHS)


def values(variants: Variants, epochs: Sequence[Epoch], shown: Sequence[int]) -> list[str]:
    """Return the metric after each epoch in `shown` as text; `-` for an epoch without a value."""
    known = {one.epoch: one.value for one in epochs}
    return [variants.per_epoch.text(known.get(epoch)) for epoch in shown]


def notes(variants: Variants, groups: int) -> list[str]:
    """Return notes on how the numbers of the table are computed, and on missing values.

    Args:
        variants: the compared variants.
        groups: number of compared groups; the table lacks the groups whose variant is not known.
    """
    base = variants.groups[0]
    found = [
        f"The time of a run ({variants.time.metric}) is the median over its epochs without the"
        " first one, because the first epoch includes the start of the program. The table has the"
        f" mean over the runs of a group. The speed-up is the time of {base.name} divided by that"
        " of the group.",
        f"Values of {variants.per_epoch.metric} and {variants.sent.metric} are means over the runs"
        " of a group.",
        "Ranks are processes: some variants have several devices in one process, others have"
        " processes that do not compute.",
    ]
    if any(epoch.epoch > MOST_KEPT for one in variants.groups for epoch in one.epochs):
        found.append(f"Of more than {MOST_KEPT} epochs of a run, only {MOST_KEPT} at even distances"
                     " are compared.")
    if base.file is not None:
        found.append("Lines that differ are the lines of code to remove and to add to get from"
                     f" {base.file} to the file of the group, without docstrings, comments, imports"
                     " and blank lines, in this copy of Trimaran. A changed line counts twice: once"
                     " removed, once added.")
    if lost := [one.name for one in variants.groups if one.lines is None]:
        found.append(f"These variants have no count of lines: {'; '.join(lost)}. The app card names"
                     " no file for them or for the first variant, or the files are not here.")
    if untimed := [one.name for one in variants.groups if one.time is None]:
        found.append(f"No run of {'; '.join(untimed)} reports {variants.time.metric} of a second"
                     " epoch, or its evidence was written by an older version.")
    if groups > len(variants.groups):
        found.append(f"The table lacks {groups - len(variants.groups)} of {groups} groups: their"
                     f" {variants.option} is not known, because an older version wrote their"
                     " evidence, or their runs differ in it.")
    return found


def panel(variants: Variants) -> Panel | None:
    """Return a panel with one curve for each variant: the metric after each epoch.

    A point of a curve has the epoch, the time in seconds and the value of the metric. Return None
    if no variant has values.
    """
    lines = [
        Line(_label(variants, one),
             [Point(epoch.epoch, epoch.seconds, epoch.value) for epoch in one.epochs],
             place, _label(variants, one))
        for place, one in enumerate(variants.groups) if one.epochs
    ]
    return Panel(variants.per_epoch.title, "plain", lines) if lines else None


class Over(NamedTuple):
    """The horizontal axis of a drawing: its name, and the arguments `by` and `unit` for a chart."""

    name: str
    by: charts.By
    unit: str


OVER = (Over("epochs", "steps", "epoch"), Over("time", "time", "step"))
"""The horizontal axes of two drawings of the metric after each epoch: over epochs, over time."""


def times(variants: Variants) -> row_charts.Table | None:
    """Return a drawing of the duration of an epoch: a dot for each run, and the mean of the runs.

    There is one row for each variant. Return None if no run reports the duration.
    """
    found = [_row(variants, one) for one in variants.groups if one.time is not None]
    return row_charts.Table(variants.time.title, found, zero=True) if found else None


def described(times: row_charts.Table) -> str:
    """Return a description of the drawing of epoch times, for readers who cannot see it."""
    return f"{times.title}: " + "; ".join(f"{row.name} {row.text}" for row in times.rows)


def _row(variants: Variants, one: Variant) -> Row:
    name, time = _label(variants, one), variants.time
    dots = [Dot(value, f"{name}: {time.text(value)} {time.unit}") for value in one.times]
    speedup = "" if one.speedup is None else f", {one.speedup:.2f}x"
    return Row(name, dots, one.time, f"{time.text(one.time)}{speedup}")


def _label(variants: Variants, one: Variant) -> str:
    """Return the name of a variant; if several groups of runs used it, with the group's name."""
    names = [other.name for other in variants.groups]
    return f"{one.name} ({one.group})" if names.count(one.name) > 1 else one.name
