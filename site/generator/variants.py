"""Compare the published runs of an app's variants, in the README of the app and on its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from generator import markdown
from generator.evidence import Piece
from generator.plots import Lines, Plot
from generator.recipe_status import RecipeStatus
from generator.sources import Sources
from trimaran import paths
from trimaran.compare import sources as compared
from trimaran.compare import variant_tables, variants
from trimaran.compare.result import Variants
from trimaran.compare.sources import Side
from trimaran.errors import UsageError
from trimaran.files import write_atomic
from trimaran.recipes.cards import Card
from trimaran.recipes.cards import Variants as Described
from trimaran.report import charts
from trimaran.report import variants as of_runs
from trimaran.report.page import short
from trimaran.report.panels import Panel
from trimaran.report.run_evidence import Execution, RunEvidence
from trimaran.report.variants import RunVariant

BEGIN = "<!-- variants: written by `make generate` -->"
END = "<!-- end of variants -->"

NOTHING = "No published runs to compare yet."
"""Text that the README of an app has in place of the comparison, as long as no run is published."""

PICTURE = "variants.svg"
"""File name of the plot that compares the variants of an app, in the folder of the app."""


@dataclass(frozen=True)
class Found:
    """The newest published runs of the variants of an app, grouped by recipe.

    Attributes:
        app: name of the app.
        variants: comparison of the variants.
        runs: evidence of the runs, by recipe; all runs used the same machine and image.
    """

    app: str
    variants: Variants
    runs: Mapping[str, Sequence[Piece[RunEvidence]]]

    @property
    def origin(self) -> str:
        """A text that names the dates, the machine and the image of the runs."""
        pieces = [piece.content for runs in self.runs.values() for piece in runs]
        days = sorted({str(piece.day) for piece in pieces})
        image = pieces[0].run.image
        return (f"measured {' and '.join(days)} on {pieces[0].run.machine}, with the image"
                f" {image.name} {short(image.digest)}")

    @property
    def panel(self) -> Panel | None:
        """A plot of the metric after each epoch, a line for each variant; None without values."""
        return variant_tables.panel(self.variants)


def find(app: str, sources: Sources) -> Found | None:
    """Return the newest runs of the quickstart of an app and of all comparable recipes.

    A recipe is comparable if it has the target, the verb and the data of the quickstart, and
    arguments that differ only in options of the key `variants` of the app card. Only runs on the
    machine and with the image of the quickstart's newest run are used: the newest run of each
    recipe, and its repetitions.

    Returns:
        The runs; None if the card has no variants, if no run of the quickstart is published, or if
        the runs are all of one variant.
    """
    card = sources.cards[app]
    own = [one for one in sources.standings.values() if one.file.recipe.app == app]
    start = next((one for one in own if one.file.recipe.purpose == "quickstart"), None)
    known = card.variants
    if known is None or start is None or not start.own_runs():
        return None
    base = start.own_runs()[0].content.run
    runs = {
        one.name: newest for one in sorted(own, key=lambda one: _place(one, known))
        if _compared(one, card, known) == _compared(start, card, known)
        if (newest := _newest(one, known, base))
    }
    result = variants.compare({name: [side for _, side in of] for name, of in runs.items()})
    pieces = {name: [piece for piece, _ in of] for name, of in runs.items()}
    return None if result is None else Found(app, result, pieces)


def _place(one: RecipeStatus, known: Described) -> tuple[object, ...]:
    """Return the sort key of a recipe: position of its variant in the app card, then its name."""
    values, files = of_runs.arguments(one.file.recipe, {}, known), list(known.files)
    value = str(values.get(known.option))
    at = files.index(value) if value in files else len(files)
    return at, of_runs.name_of(values, known) or "", one.name


def _compared(one: RecipeStatus, card: Card, known: Described) -> tuple[object, ...]:
    """Return the properties in which comparable recipes must be equal."""
    free = {known.option, *known.further, *known.follow, *card.neutral_options}
    recipe = one.file.recipe
    args = {key: value for key, value in recipe.args.items() if key not in free}
    return recipe.target, recipe.verb, list(recipe.data), args


def _newest(
    one: RecipeStatus, known: Described, base: Execution
) -> list[tuple[Piece[RunEvidence], Side]]:
    """Return the newest run of a recipe, and the earlier runs of the same experiment.

    Only runs on the machine and with the image of `base` count.
    """
    runs = [(piece, _side(piece, one, known)) for piece in one.own_runs()
            if piece.content.run.machine == base.machine
            and piece.content.run.image.digest == base.image.digest]
    return [pair for pair in runs if pair[1].experiment == runs[0][1].experiment]


def _side(piece: Piece[RunEvidence], one: RecipeStatus, known: Described) -> Side:
    """Return a published run as one side of the comparison, with the variant that the run used.

    If the evidence of the run does not record the variant, the variant is taken from the recipe.
    """
    side = compared.load(paths.repository() / piece.path)
    told = RunVariant(arguments=of_runs.arguments(one.file.recipe, {}, known))
    return side if side.variant else replace(side, variant=told)


def section(found: Found, drawings: str) -> str:
    """Return the comparison as Markdown, with `drawings` after the tables."""
    counts = sorted({len(runs) for runs in found.runs.values()})
    recipes = ", ".join(f"`{name}`" for name in found.runs)
    notes = variant_tables.notes(found.variants, len(found.runs))
    return "\n\n".join(filter(None, [
        f"The newest published runs of the quickstart and of the recipes that differ from it in the"
        f" {found.variants.option} and in what follows from it; {' or '.join(map(str, counts))} of"
        f" each recipe, {found.origin}:",
        _table(found.variants), _epochs(found.variants), drawings,
        "\n".join(f"- {text}" for text in [*notes, f"Recipes: {recipes}."]),
    ]))


def _table(about: Variants) -> str:
    """Return the table without the values of single epochs: with them, no page is wide enough."""
    (option, *head), rows = variant_tables.numbers(about)
    return markdown.table([f"`{option}`", *(f"{name}:" for name in head)],
                          [[f"`{name}`", *row] for name, *row in rows])


def _epochs(about: Variants) -> str:
    """Return the table of the metric after each epoch, or "" without values."""
    shown = variant_tables.shown_epochs(about)
    return markdown.table(
        [f"{about.per_epoch.title}, after epoch", *(f"{epoch}:" for epoch in shown)],
        [[f"`{one.name}`", *(variant_tables.values(about, one.epochs, shown))]
         for one in about.groups],
    ) if shown else ""


def picture(found: Found) -> str | None:
    """Return the picture for the README as SVG; None if no run reports a metric per epoch."""
    if (panel := found.panel) is None:
        return None
    drawn = [charts.chart(panel, over.by, over.unit) for over in variant_tables.OVER]
    return charts.picture(f"{found.app}: {panel.title} by {found.variants.option}", drawn)


def plots(found: Found) -> list[Plot]:
    """Return the plots of the page: the metric over epochs and over time, and the epoch times."""
    drawn, about = [], found.variants
    if (panel := found.panel) is not None:
        rows = [
            [one.name, one.group, epoch.epoch, round(epoch.seconds, 1),
             about.per_epoch.text(epoch.value)]
            for one in about.groups for epoch in one.epochs
        ]
        head = [about.option, "recipe", "epoch:", "seconds:", f"{about.per_epoch.title}:"]
        for name, by, unit in variant_tables.OVER:
            what = f"{about.per_epoch.metric} after each epoch over {name}"
            drawn.append(Plot(
                f"variants-{found.app}-{name}", Lines(panel, by, unit),
                charts.chart(panel, by, unit).text,
                f"{what}, mean of the runs of each recipe; {found.origin}.", head, rows))
    if (times := variant_tables.times(about)) is not None:
        drawn.append(Plot(
            f"variants-{found.app}-{about.time.metric}", times,
            f"{variant_tables.described(times)}.",
            f"{about.time.metric}: a dot for each run (median over its epochs without the first), a"
            f" vertical line for the mean, and the speed-up; {found.origin}.",
            [about.option, "recipe", f"{about.time.title}:"],
            [[one.name, one.group, about.time.text(value)]
             for one in about.groups for value in one.times]))
    return drawn


def readme(app: str, found: Found | None) -> str:
    """Return the README of an app with the comparison `found` of its variants.

    Without a comparison (None), the README has the text `NOTHING`.

    Raises:
        UsageError: the README lacks the comment lines that mark begin and end of the comparison.
    """
    text = _readme(app).read_text(encoding="utf-8")
    if found is None:
        return replaced(text, NOTHING, _readme(app))
    panel, over = found.panel, " and over ".join(one.name for one in variant_tables.OVER)
    drawings = f"![{panel.title} over {over}]({PICTURE})" if panel else ""
    return replaced(text, section(found, drawings), _readme(app))


def adopted(document: str, page: str, app: str, sources: Sources) -> tuple[str, list[Plot]]:
    """Return the README of an app as a page of the site, and the plots of that page.

    These plots compare the app's variants. They replace the single picture in the README's section
    on the variants.

    Args:
        document: text of the README with the links of the page.
        page: path of the page in the site.
        app: name of the app.
        sources: the sources of all pages.
    """
    found = find(app, sources)
    if found is None:
        known = sources.cards[app].variants
        return (document if known is None else replaced(document, NOTHING, _readme(app))), []
    drawn = plots(found)
    content = section(found, "\n\n".join(plot.markdown(page) for plot in drawn))
    return replaced(document, content, _readme(app)), drawn


def _readme(app: str) -> Path:
    return paths.repository() / "apps" / app / "README.md"


def replaced(text: str, content: str, path: Path) -> str:
    """Return `text` with `content` between the lines BEGIN and END.

    Raises:
        UsageError: the text, which was read from the file `path`, lacks these lines.
    """
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"{path}: the lines `{BEGIN}` and `{END}` are missing",
                         code="file-invalid",
                         hint="add both lines, in this order, where the comparison belongs")
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{after}"


def write(sources: Sources) -> None:
    """Write the comparison into the README of each app with variants, and its picture."""
    for app, card in sources.cards.items():
        if card.variants is None:
            continue
        found, file = find(app, sources), _readme(app).with_name(PICTURE)
        write_atomic(_readme(app), readme(app, found))
        drawn = picture(found) if found else None
        if drawn is None:
            file.unlink(missing_ok=True)
        else:
            write_atomic(file, drawn)
