"""Generate the pages of results, and the table of results in README and home page."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from statistics import median

from generator import (
    benchmarks,
    learning,
    markdown,
    predictions,
    rates,
    recipe_status,
    releases,
    scaling,
)
from generator.pages import Page, fill
from generator.recipe_status import RecipeStatus
from generator.recipes import place as recipe_page
from generator.sources import Sources
from trimaran.evidence import age
from trimaran.report.run_evidence import JudgedRow, RunEvidence

FOLDER = "results"


def pages(sources: Sources) -> list[Page]:
    """Return the pages below `results/`."""
    return [
        _overview(sources), _throughput(sources), _scaling(sources), _accuracy(sources),
        _benchmarks(sources), predictions.page(sources),
    ]


def _overview(sources: Sources) -> Page:
    page = f"{FOLDER}/index.md"
    rows = [row for one in sources.standings.values() for row in _rows(page, one, sources.today)]
    head = ["recipe and metric", "expected, and its source", "result:", "verdict", "run"]
    plot = learning.reached(sources.standings.values())
    text = fill("results.md.j2", page, rows=markdown.table(head, rows), plot=plot.markdown(page))
    return Page(page, text, "Overview", plots=(plot,))


def _rows(page: str, one: RecipeStatus, today: dt.date) -> list[list[str]]:
    runs = one.own_runs()
    several = Counter(number.expected.metric for number in one.numbers)
    rows = []
    for number in one.numbers:
        metric = number.expected.metric
        at = number.expected.at
        found = [row for piece in runs if (row := piece.content.row(metric, at)) is not None]
        source = number.source if number.date is None else (
            f"{number.source}, {markdown.moment(number.date)}")
        rows.append([
            f"[{one.name}]({markdown.link(page, recipe_page(one.name))})<br>`{metric}`"
            + (f" ({at})" if several[metric] > 1 else ""),
            f"**{number.text}**<br><small>{source}</small>",
            _middle(one, metric, found) if found else "",
            _verdicts(found) or markdown.chip(one.status, one.status),
            _when(one, runs[0].content, today) if found else "",
        ])
    return rows


def _when(one: RecipeStatus, newest: RunEvidence, today: dt.date) -> str:
    """Return day and framework of the newest run, with a label if it is older than a year."""
    framework = one.file.card.card.framework
    version = newest.run.version_of(framework)
    return " ".join([
        markdown.moment(newest.day),
        *([markdown.chip("stale", "stale")] if age.is_stale(newest.day, today) else []),
        *([f"<small>{framework} {version}</small>"] if version else []),
    ])


def _middle(one: RecipeStatus, metric: str, rows: Sequence[JudgedRow]) -> str:
    """Return the median of measured values as text; the app card defines unit and digits."""
    known = one.file.card.card.metrics[metric]
    value = median(row.measured for row in rows if row.measured is not None)
    return recipe_status.show(value, known.unit, known.digits)


def _verdicts(rows: Sequence[JudgedRow]) -> str:
    """Return how many of the judged runs passed, such as `3 of 4 PASS`, or "" if none was judged.

    A run was not judged if its recipe had no bound for the metric at that time. Such a run is not
    judged later, because the bound may result from this run.
    """
    judged = [row.outcome for row in rows if row.outcome != "NO REFERENCE"]
    return f"{judged.count('PASS')} of {len(judged)} PASS" if judged else ""


def real(sources: Sources) -> list[list[str]]:
    """Return the rows of the table of results: recipes whose expected values were reproduced.

    A row has the recipe, the metric, the accepted values, the median of the judged runs on the
    newest day, the number of these runs that passed, the machine and the date.
    """
    rows = []
    for one in sources.standings.values():
        if one.status != "reproduced":
            continue
        for number in one.numbers:
            metric = number.expected.metric
            judged = [(piece.content, row) for piece in one.own_runs()
                      if (row := piece.content.row(metric, number.expected.at))
                      and row.outcome != "NO REFERENCE"]
            newest = [row for run, row in judged if run.day == judged[0][0].day]
            if newest:
                rows.append([
                    one.name, metric, number.accepted, _middle(one, metric, newest),
                    _verdicts(newest), judged[0][0].run.host.text, judged[0][0].day.isoformat(),
                ])
    return rows


REAL = ["recipe", "metric", "accepted", "result", "verdicts", "machine", "date"]
"""Column headings of the table that `real` fills: the recipes with reproduced results."""

CAPTION = """\
Result: the median over all runs on that date. Verdicts: how many of these runs passed, judged by
the recipe as it was then; runs of a recipe without a bound are not counted."""
"""Text below the table of results."""


def _throughput(sources: Sources) -> Page:
    page = f"{FOLDER}/throughput.md"
    plots = [rates.throughput(sources), rates.ran(sources)]
    compared = releases.releases(sources)
    text = fill(
        "throughput.md.j2", page, plot=plots[0].markdown(page), ran=plots[1].markdown(page),
        versions=releases.plot(compared).markdown(page) if compared else "",
        slower=[one for one in compared if one.slower],
    )
    plots += [releases.plot(compared)] if compared else []
    return Page(page, text, "Throughput", plots=tuple(plots))


def _scaling(sources: Sources) -> Page:
    page = f"{FOLDER}/scaling.md"
    plots = [scaling.speedups(sources, efficiency=efficiency) for efficiency in (False, True)]
    text = fill("scaling.md.j2", page, speedup=plots[0].markdown(page),
                efficiency=plots[1].markdown(page))
    return Page(page, text, "Scaling", plots=tuple(plots))


def _accuracy(sources: Sources) -> Page:
    page = f"{FOLDER}/accuracy.md"
    parts, plots = [], []
    for name, points in sources.recipes.items():
        if points[0].file.recipe.purpose == "smoke":
            continue  # a few steps, often on random images: their curves are on the recipe's page
        drawn = learning.curves_of(name, points)
        for one in points:
            varied = {learning.label_of(one, piece) for piece in one.runs}
            if one.numbers and len(varied) > 1:
                drawn.append(learning.accuracies(one, one.numbers[0].expected.metric))
        if drawn:
            address = markdown.link(page, recipe_page(name))
            parts.append(f"## {name}\n\n{points[0].file.recipe.summary} [Recipe]({address})\n")
            parts += [plot.markdown(page) for plot in drawn]
            plots += drawn
    text = fill("accuracy.md.j2", page, parts="\n\n".join(parts))
    return Page(page, text, "Accuracy", plots=tuple(plots))


def _benchmarks(sources: Sources) -> Page:
    page = f"{FOLDER}/benchmarks.md"
    pieces = [piece for found in sources.shelf.benchmarks.values() for piece in found]
    parts = [benchmarks.part(page, piece) for piece in pieces]
    text = fill("benchmarks.md.j2", page, parts="\n\n".join(part for part, _ in parts))
    return Page(page, text, "Benchmarks", plots=tuple(plot for _, drawn in parts for plot in drawn))
