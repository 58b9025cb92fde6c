"""Generate the catalogue of recipes, and a page for each recipe."""

from __future__ import annotations

import datetime as dt
import html
import shlex
from collections.abc import Callable, Sequence

from generator import commands, learning, markdown, recipe_status, scaling
from generator.evidence import Piece
from generator.pages import Page, fill
from generator.recipe_status import STATUS, RecipeStatus
from generator.sources import Sources
from trimaran.data.cache import getting
from trimaran.data.contracts import load as contract
from trimaran.data.weights import load as weights
from trimaran.evidence import age
from trimaran.plan import estimates
from trimaran.recipes import cards, targets
from trimaran.recipes.recipe import Recipe
from trimaran.report.run_evidence import RunEvidence

FOLDER = "recipes"
INDEX = f"{FOLDER}/index.md"

PURPOSES = {
    "quickstart": "the first thing to run", "smoke": "does it work, in a minute",
    "throughput": "how fast it is", "scaling": "how much faster on more of the machine",
    "convergence": "whether it learns what it should",
}

GIB = 2**30
MEMORY = {
    "weights": "weights in fp32", "gradients": "gradients", "optimizer": "state of the optimizer",
    "copies": "copies of the weights for the matrix products",
    "gathered": "weights of other ranks", "scattered": "gradients before they are divided",
    "activations": "activations of the micro-batches in flight",
    "waiting": "probabilities of the micro-batches in flight", "loss": "arrays during the loss",
    "pipeline": "buffers of the pipeline", "working": "values in between, in a block",
    "states": "weights, gradients and state of the optimizer together",
    "peak": "**peak**: the largest sum at one moment of a step",
}
"""Key in the memory estimate of a training -> what occupies this memory."""


def place(name: str) -> str:
    """Return the path of a recipe's page; all sizes of a scaling series share one page."""
    return f"{FOLDER}/{name.partition('@')[0]}.md"


def pages(sources: Sources) -> list[Page]:
    """Return the page with the catalogue, and a page for each recipe."""
    return [_catalogue(sources), *(_page(sources, name) for name in sources.recipes)]


def _catalogue(sources: Sources) -> Page:
    entries = [_entry(name, points) for name, points in sources.recipes.items()]
    facets = {
        "app": sorted({str(entry["app"]) for entry in entries}),
        "hardware": sorted({str(entry["hardware"]) for entry in entries}),
        "purpose": [one for one in PURPOSES if any(entry["purpose"] == one for entry in entries)],
        "status": [one for one in STATUS if any(one in str(entry["status"]) for entry in entries)],
    }
    text = fill("recipes.md.j2", INDEX, entries=entries, facets=facets, meaning=STATUS,
                purposes=PURPOSES)
    return Page(INDEX, text, "Recipes")


def _entry(name: str, points: Sequence[RecipeStatus]) -> dict[str, object]:
    first, last = points[0], points[-1]
    recipe = first.file.recipe
    best = best_status(points)
    key = last.numbers[0] if last.numbers else None
    return {
        "name": name, "title": name.partition("/")[2], "href": f"{name}/", "app": recipe.app,
        "hardware": first.hardware, "purpose": recipe.purpose, "status": best,
        "summary": recipe.summary, "target": recipe.target,
        "number": None if key is None else key.text,
        "metric": None if key is None else key.expected.metric,
        "where": "" if last.point is None else f" at @{last.point}",
        "source": None if key is None else key.cited,
    }


def best_status(points: Sequence[RecipeStatus]) -> recipe_status.Status:
    """Return the best status of a recipe; `points` has an entry per size of a scaling series."""
    order = list(STATUS)
    return min((one.status for one in points), key=order.index)


def _page(sources: Sources, name: str) -> Page:
    points, own = sources.recipes[name], place(name)
    first = points[0]
    recipe = first.file.recipe
    text = first.file.path.read_text(encoding="utf-8")
    drawn = [*scaling.scaling_of(points), *learning.curves_of(name, points)]
    runs = [(one, piece) for one in points for piece in one.runs]
    body = fill(
        "recipe.md.j2", own, name=name, recipe=recipe, points=points, first=first,
        status=best_status(points), meaning=STATUS, about=markdown.comment(text),
        yaml=text[text.index("schema:"):], file=recipe_status.relative(first.file.path),
        expected=_expected(points), judged=_judged(points), assumed=_assumed(points),
        ways=_ways(points),
        facts=_facts(points), target=targets.load(recipe.target), data=_data(first),
        before=commands.first(first), runs=_runs(own, runs, sources.today),
        plots="\n\n".join(plot.markdown(own) for plot in drawn),
        card=sources.cards[recipe.app], escape=html.escape, memory=_memory(points),
    )
    return Page(own, body, name.partition("/")[2], recipe.app, tuple(drawn))


def _expected(points: Sequence[RecipeStatus]) -> str:
    rows = []
    for one in points:
        for number in one.numbers:
            at = number.expected.at
            source = number.source
            if number.date is not None:
                source += f", {markdown.moment(number.date)}"
            row = [f"`{number.expected.metric}`", f"**{number.text}**", number.accepted, at, source]
            rows.append(row if one.point is None else [f"`@{one.point}`", *row])
        if (expected := one.file.recipe.efficiency) is not None:
            rows.append([
                f"`@{one.point}`", "efficiency", f"**{100 * expected.value:g} %**",
                f"at least {100 * expected.lowest:.3g} % of `@{expected.over}`",
                "`trimaran compare`", expected.source,
            ])
    head = ["metric", "expected:", "accepted", "when", "source"]
    return markdown.table(head if points[0].point is None else ["point", *head], rows)


def _judged(points: Sequence[RecipeStatus]) -> bool:
    return any(number.expected.unjudged is None for one in points for number in one.numbers)


def _assumed(points: Sequence[RecipeStatus]) -> str:
    """Return the table of the assumed values, which no source states, with their reasons."""
    rows: dict[tuple[str, str], list[str]] = {}
    for one in points:
        for line in one.file.recipe.assumptions():
            rows.setdefault(line, []).append(f"@{one.point}")
    said = [[f"`{value}`" + ("" if len(where) == len(points) else f" ({', '.join(where)})"), reason]
            for (value, reason), where in rows.items()]
    return markdown.table(["value", "assumed, because"], said) if said else ""


def _ways(points: Sequence[RecipeStatus]) -> str:
    """Return the commands of a recipe as Markdown; a scaling series has one tab for each size."""
    if points[0].point is None:
        return _commands(points[0])
    return markdown.tabs([(f"@{one.point}", _commands(one)) for one in points])


def _commands(one: RecipeStatus) -> str:
    here = commands.run(one)
    parts = [("On a cluster", _blocks([commands.submit(one), 'trimaran logs -f "$RUN"',
                                       'trimaran report "$RUN"'])),
             ("Apptainer alone", markdown.code(commands.plain(one), title="apptainer"))]
    if here is not None:
        parts.insert(0, ("On this machine", markdown.code(here, title="trimaran run")))
    return markdown.tabs(parts)


def _blocks(lines: Sequence[str]) -> str:
    first, *more = lines
    after = markdown.code("\n".join(more), title="then")
    return f"{markdown.code(first, title='trimaran submit')}\n\n{after}"


def _facts(points: Sequence[RecipeStatus]) -> list[tuple[str, str]]:
    recipe, node = points[0].file.recipe, points[0].target.node

    def fact(read: Callable[[Recipe], object]) -> str:
        values = list(dict.fromkeys(str(read(one.file.recipe)) for one in points))
        return values[0] if len(values) == 1 else "by the point"

    return [
        ("app", recipe.app), ("image", recipe.image.name),
        ("launcher", fact(lambda one: one.launcher)),
        ("nodes", fact(lambda one: one.resources.nodes)),
        ("ranks per node", fact(lambda one: one.resources.tasks_per_node)),
        ("cores per rank", fact(lambda one: one.resources.cpus_per_task)),
        ("accelerators per rank", fact(lambda one: one.resources.gpus_per_task)),
        ("time limit", fact(lambda one: one.resources.walltime)),
        ("cores of the machine", str(node.cores or "any number")),
        ("memory of the machine",
         "not said" if node.memory_gib is None else f"{node.memory_gib:g} GiB or more"),
    ]


def _data(one: RecipeStatus) -> list[dict[str, str]]:
    found = []
    for name, use in one.file.recipe.data.items():
        known = contract(name)
        counts = ", ".join(f"{count:,} {split}" for split, count in use.samples.items())
        found.append({
            "name": name, "title": known.title, "format": use.format, "samples": counts,
            "licence": known.licence.id, "how": getting(known, use.format),
        })
    initial = one.file.recipe.initial
    if initial is not None and initial.weights is not None:
        own = weights(initial.weights)
        found.append({"name": own.name, "title": own.title, "format": "weights",
                      "samples": f"{own.content.size / 1e6:,.1f} MB", "licence": own.licence.id,
                      "how": own.getting})
    return found


def _memory(points: Sequence[RecipeStatus]) -> list[dict[str, str]]:
    """Return the tables of the estimated memory: one, or one for each size of a scaling series.

    A size without an estimate is left out. Each dictionary has the keys `point` (the size, such as
    `@4`), `command` (the command that prints the estimate) and `table` (Markdown: the memory of the
    rank that needs most memory).
    """
    card = cards.load(points[0].file.recipe.app)
    known = estimates.read(points[0].file.recipe.app)
    found = []
    for one in points:
        if (estimate := known.get(one.name)) is None:
            continue
        memory = estimates.largest(estimate)
        parts = [(name, memory[name]) for name in MEMORY if memory[name]]
        rows = [[MEMORY[name], f"{size / GIB:,.3g} GiB"] for name, size in parts]
        command = f"python -m {card.card.module} estimate {shlex.join(estimate['arguments'])}"
        found.append({
            "point": f"@{one.point}" if one.point else "", "command": command,
            "table": markdown.table(["memory of a rank", "estimate"], rows),
        })
    return found


def _runs(
    page: str, runs: Sequence[tuple[RecipeStatus, Piece[RunEvidence]]], today: dt.date
) -> str:
    rows = [
        [" ".join([_when(page, piece), *_age(one, piece, today)]), f"`@{one.point}`",
         _changes(one, piece),
         "<br>".join(f"{row.metric} {markdown.whole(row.measured_text)}"
                     for row in piece.content.verdict.rows),
         _outcome(piece), piece.content.run.host.text,
         f"{_software(one, piece)}<br>`{piece.content.run.image.digest[7:19]}`"]
        for one, piece in runs
    ]
    head = ["run", "point", "changed", "result", "verdict", "machine", "image"]
    if not any(one.point for one, _ in runs):
        head.remove("point")
        rows = [[row[0], *row[2:]] for row in rows]
    return markdown.table(head, rows)


def _when(page: str, piece: Piece[RunEvidence]) -> str:
    return f"[{markdown.moment(piece.content.day)}]({markdown.link(page, f'files/{piece.path}')})"


def _age(one: RecipeStatus, piece: Piece[RunEvidence], today: dt.date) -> list[str]:
    """Return labels for evidence that is older than a year, or of an older recipe file."""
    return [
        *([markdown.chip("stale", "stale")] if age.is_stale(piece.content.day, today) else []),
        *([markdown.chip("older", "older")]
          if piece.content.run.recipe.sha256 != one.file.sha256 else []),
    ]


def _software(one: RecipeStatus, piece: Piece[RunEvidence]) -> str:
    framework = one.file.card.card.framework
    return f"{framework} {piece.content.run.version_of(framework) or '(not recorded)'}"


def _changes(one: RecipeStatus, piece: Piece[RunEvidence]) -> str:
    used = piece.content.run.recipe
    said = [f"`{key}={value}`" for key, value in used.changed.items()]
    if used.sha256 != one.file.sha256:
        differed = one.others.get(used.sha256)
        said.append(f"earlier wording{f': {differed}' if differed else ''}")
    return "<br>".join(said)


def _outcome(piece: Piece[RunEvidence]) -> str:
    outcome = piece.content.verdict.outcome
    return markdown.chip(outcome, outcome.replace(" ", "-").lower())
