"""Insert numbers with their date and source into hand-written pages.

`{{ ratio("resnet_cpu", "ours / stock") }}` in a guide inserts the number and a reference to the
list of sources at the end of the page. If a number is not found in evidence, in a recipe or in
`site/published.yaml`, the build stops.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from datetime import date
from statistics import median

from jinja2 import Environment, StrictUndefined
from jinja2.exceptions import TemplateError

from generator import (
    image_overview,
    images,
    markdown,
    recipe_status,
    recipes,
    results,
    suites,
    undated,
)
from generator.evidence import Piece, Ratio, Spread
from generator.sources import Sources
from trimaran.errors import UsageError
from trimaran.report.run_evidence import RunEvidence

_HOW = re.compile(
    r"^<!-- (?:real|small|given|/?script|/?diff).*?-->\n", re.MULTILINE
)
"""Matches comments that control tests or mark generated text; they are removed from the page."""


_LONG = 600
"""Duration of a run in seconds from which a page shows it in minutes, not in seconds."""


class Page:
    """A hand-written page, with the list of the sources of its numbers."""

    def __init__(self, place: str, sources: Sources) -> None:
        self.place = place
        self.sources = sources
        self.cited: list[str] = []

    def fill(self, text: str) -> str:
        """Return the text with all numbers inserted, followed by the list of sources.

        Raises:
            UsageError: A number is not found; the message names it.
        """
        undated.refuse(text, f"site/docs/{self.place}")
        environment = Environment(
            undefined=StrictUndefined,
            autoescape=False,  # noqa: S701 - Markdown, of our own pages
        )
        environment.globals.update(self.words())
        try:
            filled = _HOW.sub("", environment.from_string(text).render())
        except (TemplateError, UsageError) as error:
            raise UsageError(f"site/docs/{self.place}:{_line(error)}: {error}") from error
        if not self.cited:
            return filled
        marks = "\n".join(
            f'1. <span id="source-{number}"></span>{source}'
            for number, source in enumerate(self.cited, start=1)
        )
        return f"{filled.rstrip()}\n\n## Sources of the numbers\n\n{marks}\n"

    def words(self) -> dict[str, Callable[..., str]]:
        """Return the functions that a page can call, by name."""
        return {"ratio": self.ratio, "rate": self.rate, "came_to": self.came_to,
                "took": self.took, "expected": self.expected, "published": self.published,
                "image": self.image, "efficiency": self.efficiency, "hardware": self.hardware,
                "real_results": self.real_results, "suite": self.suite}

    def cite(self, text: str, source: str) -> str:
        """Return a number with a reference to its source, which is added to the list."""
        if source not in self.cited:
            self.cited.append(source)
        number = self.cited.index(source) + 1
        title = re.sub(r"<[^>]+>|\[|\]\([^)]*\)", "", source).replace('"', "'")
        return f'{text}<sup class="source">[{number}](#source-{number} "{title}")</sup>'

    def ratio(self, benchmark: str, text: str, *, spread: bool = False) -> str:
        """Return the newest median of the ratio `text` of a benchmark.

        With `spread`, it is followed by the smallest and the largest value.
        """
        for piece in self.sources.shelf.benchmarks.get(benchmark, []):
            for found in piece.content.ratios:
                if found.text == text:
                    return self._round(found, piece.path, piece.content.day.isoformat(),
                                       piece.content.machine.machine.text, spread)
        raise UsageError(f"no benchmark {benchmark} has the ratio '{text}'")

    def rate(self, benchmark: str, name: str, *, spread: bool = False) -> str:
        """Return the newest median of the rate `name` of a benchmark, with its unit.

        With `spread`, it is followed by the smallest and the largest value.
        """
        for piece in self.sources.shelf.benchmarks.get(benchmark, []):
            for found in piece.content.rates:
                if found.name == name:
                    return self._round(found, piece.path, piece.content.day.isoformat(),
                                        piece.content.machine.machine.text, spread, found.unit)
        raise UsageError(f"no benchmark {benchmark} has the rate '{name}'")

    def _round(
        self, found: Spread, path: str, day: str, machine: str, spread: bool, unit: str = ""
    ) -> str:
        text = _short(found.median)
        if spread:
            text += f" ({_short(found.min)} to {_short(found.max)})"
        if isinstance(found, Ratio) and found.goal is not None and not found.met:
            text += f", goal {found.goal:g} not met"
        where = markdown.link(self.place, f"files/{path}")
        rounds = len(found.values)
        return self.cite(f"{text} {unit}".rstrip(), f"[{path.rpartition('/')[2]}]({where}):"
                         f" {day}, {machine}, median of {rounds} rounds")

    def came_to(self, recipe: str, metric: str, *, day: str = "", **changed: object) -> str:
        """Return the median of a metric over the runs of a recipe on one day.

        Args:
            recipe: name of the recipe.
            metric: name of the metric.
            day: day of the runs; default: the newest day.
            changed: arguments in which the runs differ from the recipe; `_` stands for `-` in their
                names. Neutral arguments, such as the seed, are not compared.
        """
        runs = self._runs(recipe, day, changed, metric)
        rows = [row for piece in runs if (row := piece.content.row(metric)) is not None]
        values = [row.measured for row in rows if row.measured is not None]
        text = recipe_status.show(median(values), rows[0].unit, rows[0].digits)
        how = f"median of {len(runs)} seeds" if len(runs) > 1 else "one run"
        return self._of_runs(text, recipe, runs, how)

    def took(self, recipe: str, *, day: str = "", **changed: object) -> str:
        """Return the shortest and the longest time of the runs of a recipe on one day.

        The arguments are those of `came_to`.
        """
        runs = self._runs(recipe, day, changed)
        seconds = [piece.content.run.seconds for piece in runs]
        factor, unit = (60, "min") if max(seconds) >= _LONG else (1, "s")
        ends = dict.fromkeys(f"{one / factor:.0f}" for one in (min(seconds), max(seconds)))
        how = f"least and most of {len(runs)} runs" if len(runs) > 1 else "one run"
        return self._of_runs(f"{' to '.join(ends)} {unit}", recipe, runs, how)

    def _runs(
        self, recipe: str, day: str, changed: dict[str, object], metric: str | None = None
    ) -> list[Piece[RunEvidence]]:
        """Return the runs on `day`, or on the newest day, whose changed arguments are `changed`."""
        wanted = {key.replace("_", "-"): str(value) for key, value in changed.items()}
        known = self.sources.standings.get(recipe)
        runs = [
            piece for piece in (known.runs if known else ())
            if known and known.changes(piece) == wanted
            and (metric is None or piece.content.row(metric) is not None)
            and day in ("", piece.content.day.isoformat())
        ]
        if not runs:
            raise UsageError(f"no evidence of {recipe} with {wanted}"
                             + (f" has {metric}" if metric else ""))
        return [piece for piece in runs if piece.content.day == runs[0].content.day]

    def _of_runs(self, text: str, recipe: str, runs: list[Piece[RunEvidence]], how: str) -> str:
        known, first = self.sources.standings[recipe], runs[0]
        where = markdown.link(self.place, f"recipes/{recipe.partition('@')[0]}.md#evidence")
        changes = ", ".join(f"{key}={value}" for key, value in known.changes(first).items())
        return self.cite(text, f"[{recipe}]({where}){f' with {changes}' if changes else ''}:"
                         f" {first.content.day}, {first.content.run.host.text}, {how}")

    def expected(self, recipe: str, metric: str) -> str:
        """Return the expected value of a metric in a recipe."""
        known = self.sources.standings.get(recipe)
        for number in known.numbers if known else ():
            if number.expected.metric == metric:
                where = markdown.link(self.place, f"recipes/{recipe.partition('@')[0]}.md")
                return self.cite(number.text, f"[{recipe}]({where}): {number.cited}")
        raise UsageError(f"the recipe {recipe} expects no {metric}")

    def efficiency(self, first: str, other: str) -> str:
        """Return the scaling efficiency of the recipe `other` relative to the recipe `first`."""
        rates, sizes, marks = [], [], ""
        for name in (first, other):
            marks += "".join(re.findall("<sup.*</sup>", self.expected(name, "throughput")))
            known = self.sources.standings[name]
            rates.append(next(number.expected.value for number in known.numbers
                              if number.expected.metric == "throughput"))
            sizes.append(known.ranks)
        return f"{rates[1] / rates[0] * sizes[0] / sizes[1]:.0%}{marks}"

    def published(self, key: str) -> str:
        """Return the number `key` of `site/published.yaml`, with its source."""
        known = self.sources.published
        if key not in known.figures:
            raise UsageError(f"site/published.yaml has no figure '{key}'")
        figure = known.figures[key]
        source = known.sources[figure.source]
        title = f"[{source.title}]({source.url})" if source.url else source.title
        place = f", {figure.place}" if figure.place else ""
        return self.cite(figure.text, f"{title} ({source.year}){place}: {figure.what}")

    def image(self, name: str, what: str) -> str:
        """Return the size (`size`, in MB) or the start time (`start`, in s) of an image."""
        image = next((one for one in self.sources.images if one.name == name), None)
        piece = images.newest(image, self.sources) if image else None
        if piece is None:
            raise UsageError(f"no evidence of the image {name}")
        seen = piece.content
        text = f"{seen.size / 1e6:,.0f} MB" if what == "size" else image_overview.start(seen)
        where = markdown.link(self.place, f"images/{name}.md")
        return self.cite(text, f"[{name}]({where}): {seen.day}, {seen.host.text}")

    def suite(self, kind: str) -> str:
        """Return the last results of the suite `faults`, `tests` or `mutants`, with their date."""
        pieces = self.sources.shelf.suites.get(kind, [])
        if not pieces:
            raise UsageError(f"no evidence of {kind}")
        found = pieces[0].content
        where = markdown.link(self.place, suites.PLACE)
        last = suites.newest([piece.content for piece in pieces])
        return self.cite(f"{suites.came_to(kind, last)}, the last on {found.day}",
                         f"[Tests and faults]({where}): {found.day}, {found.host.text},"
                         f" `{found.command}`, revision `{found.revision[:12]}`")

    def real_results(self) -> str:
        """Return the table of recipes whose results were reproduced."""
        rows = [
            [f"[{name}]({markdown.link(self.place, recipes.place(name))})", *row[:-1],
             markdown.moment(date.fromisoformat(row[-1]))]
            for name, *row in results.real(self.sources)
        ]
        return f"{markdown.table(results.REAL, rows)}\n\n{results.CAPTION}"

    def hardware(self) -> str:
        """Return the table of the peak performance of devices, with its source."""
        table = self.sources.published.hardware
        source = self.sources.published.sources[table.source]
        rows = [
            [name, *("" if value is None else f"{value:g}" for value in
                     (one.fp16, one.tensor, one.fp32, one.fp64)), one.memory,
             f"{one.bandwidth:g}"]
            for name, one in table.devices.items()
        ]
        head = ["device", "FP16:", "tensor cores:", "FP32:", "FP64:", "memory, GB:",
                "bandwidth, GB/s:"]
        mark = self.cite("Peak figures, TFLOP/s", f"{source.title} ({source.year}), {table.place}")
        return f"{mark}:\n\n{markdown.table(head, rows)}"


def _short(value: float) -> str:
    """Return a value with three significant digits; values from 1000 are rounded to integers."""
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def _line(error: Exception) -> int:
    """Return the number of the line that caused an error, from Jinja's traceback."""
    return next(frame.lineno or 1 for frame in reversed(traceback.extract_tb(error.__traceback__))
                if frame.filename in ("<template>", "<unknown>"))
