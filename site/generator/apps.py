"""Generate the pages of the apps: app card, README, recipes and metrics."""

from __future__ import annotations

from generator import learning, markdown, variants
from generator.adopt import Library
from generator.pages import Page, fill
from generator.recipes import best_status
from generator.recipes import place as recipe_page
from generator.sources import Sources

FOLDER = "apps"
INDEX = f"{FOLDER}/index.md"


def pages(sources: Sources, known: Library) -> list[Page]:
    """Return the page with the list of apps, and a page for each app."""
    rows = [
        [f"[{card.title}]({app}.md)", f"`{app}`", card.framework,
         ", ".join(card.data.kinds) or "none", ", ".join(card.verbs)]
        for app, card in sources.cards.items()
    ]
    table = markdown.table(["what it is", "app", "framework", "samples", "verbs"], rows)
    index = Page(INDEX, fill("apps.md.j2", INDEX, table=table), "Apps")
    return [index, *(_page(app, sources, known) for app in sources.cards)]


def _page(app: str, sources: Sources, known: Library) -> Page:
    own, card = f"{FOLDER}/{app}.md", sources.cards[app]
    recipes = [
        [f"[{name}]({markdown.link(own, recipe_page(name))})", points[0].file.recipe.summary,
         markdown.chip(best_status(points), best_status(points))]
        for name, points in sources.recipes.items() if points[0].file.recipe.app == app
    ]
    drawn = [
        plot for name, points in sources.recipes.items() if points[0].file.recipe.app == app
        and points[0].file.recipe.purpose == "quickstart"
        for plot in learning.curves_of(name, points)
    ]
    metrics = [
        [f"`{name}`", metric.unit, metric.better,
         "on its own hardware only" if metric.hardware_bound else "anywhere", f"`{metric.key}`"]
        for name, metric in card.metrics.items()
    ]
    document, compared = variants.adopted(known.page(f"apps/{app}/README.md"), own, app, sources)
    text = fill(
        "app.md.j2", own, document=document,
        recipes=markdown.table(["recipe", "what it is", "status"], recipes),
        metrics=markdown.table(["metric", "unit", "better", "judged", "in metrics.jsonl"], metrics),
        verbs=card.verbs, curves="\n\n".join(plot.markdown(own) for plot in drawn),
    )
    return Page(own, text, card.title, "", plots=(*drawn, *compared))
