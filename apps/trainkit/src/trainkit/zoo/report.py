"""Print the table of a benchmark, and write its files."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from trainkit import atomic, plots
from trainkit.exits import ArgumentError
from trainkit.streams import say
from trainkit.zoo import measure, plot
from trainkit.zoo.measure import Ceiling, Effort, Failure, Rate, Row
from trainkit.zoo.options import NUMBERS, BenchmarkSettings
from trainkit.zoo.run import Opener, run

HEAD = ("network", "size", "parameters", "GFLOP", "forward img/s", "share", "training img/s",
        "share")


def main(settings: BenchmarkSettings, module: str, names: Sequence[str]) -> None:
    """Measure the networks `names`, print the table or JSON, and write the files of `--to`.

    Args:
        settings: the options.
        module: module of the app with a function `open_framework(settings)`, which returns the
            framework with its device and precision.
        names: names of existing networks.

    Raises:
        ArgumentError: a network could not be measured; the results of all others are printed.
    """
    effort = Effort(settings.batch_size, settings.steps, settings.warmup)
    title, ceiling, rows = run(
        Opener(module, settings), names, effort, lambda text: say(sys.stderr, f"{text}\n")
    )
    title = f"{title}, {effort.batch} images per step"
    found = document(title, effort, ceiling, rows)
    print(json.dumps(found) if settings.json else "\n".join(table(title, effort, ceiling, rows)))
    sys.stdout.flush()
    for path in settings.to or []:
        if path.suffix == NUMBERS:
            atomic.write_json(path, found)
        else:
            with plots.drawing():
                plots.save(plot.draw(title, [row for row in rows if isinstance(row, Row)]), path)
    refuse_failures(rows)


def refuse_failures(rows: Sequence[Row | Failure]) -> None:
    """Raise an error that names the networks that could not be measured, if there are any.

    Raises:
        ArgumentError: a network could not be measured.
    """
    failures = [row for row in rows if isinstance(row, Failure)]
    if failures:
        names = ", ".join(row.name for row in failures)
        memory = any(row.code == measure.OUT_OF_MEMORY for row in failures)
        raise ArgumentError(
            f"{len(failures)} of {len(rows)} networks could not be measured: {names}; the table "
            "has the reasons" + (". A smaller --batch-size needs less memory" if memory else ""),
            code=failures[0].code,
        )


def document(
    title: str, effort: Effort, ceiling: Ceiling, rows: Sequence[Row | Failure]
) -> dict[str, Any]:
    """Return all numbers as --json prints them, without rounding."""
    return {
        "title": title, **dataclasses.asdict(effort), "ceiling": dataclasses.asdict(ceiling),
        "networks": [dataclasses.asdict(row) for row in rows],
    }


def table(
    title: str, effort: Effort, ceiling: Ceiling, rows: Sequence[Row | Failure]
) -> Iterator[str]:
    """Yield the lines of the table for a terminal."""
    yield title
    yield (f"ceiling: {ceiling.flops_per_second / 1e12:.3g} TFLOP/s, the product of two matrices "
           f"of order {ceiling.order}")
    yield ""
    cells = [HEAD, *(_cells(row) for row in rows if isinstance(row, Row))]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        rest = zip(others, widths[1:], strict=True)
        yield "  ".join([first.ljust(widths[0]), *(one.rjust(width) for one, width in rest)])
    for row in rows:
        if isinstance(row, Failure):
            yield f"{row.name}: not measured: {row.reason}"
    yield ""
    yield f"img/s: median of {effort.steps} steps (distance of the quartiles)"
    yield "GFLOP: products of one image, forward; a multiplication and an addition are two"
    yield (f"share: rate x operations of an image / ceiling; {measure.TRAINING} x forward for "
           "training")
    measured = [row for row in rows if isinstance(row, Row)]
    if any(rate.share > 1 for row in measured for rate in (row.forward, row.training)):
        yield ("a share above 100 %: other work slowed the product down, or the library computes "
               "convolutions in fewer operations")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name, str(row.size), f"{row.parameters / 1e6:.2f} M", f"{row.flops / 1e9:.3g}",
        _rate(row.forward), f"{row.forward.share:.0%}",
        _rate(row.training), f"{row.training.share:.0%}",
    )


def _rate(rate: Rate) -> str:
    value = rate.images_per_second
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} ({(rate.fast - rate.slow) / value:>4.1%})"
