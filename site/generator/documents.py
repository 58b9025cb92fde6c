"""List the documents of the repository that are also pages of the site."""

from __future__ import annotations

from generator.adopt import Library
from generator.pages import Page
from generator.sources import Sources

DOCUMENTS = {
    "apps/README.md": ("reference/app-contract.md", "The app contract"),
    "apps/shards/README.md": ("reference/shards/index.md", "shards"),
    "apps/trainkit/README.md": ("reference/trainkit/index.md", "trainkit"),
    "containers/README.md": ("images/building.md", "Building and publishing"),
    "containers/EXTENDING.md": ("images/extending.md", "Extending"),
    "recipes/README.md": ("reference/recipes.md", "Recipes and their files"),
    "benchmarks/README.md": ("results/measuring.md", "How benchmarks are made"),
    "CONTRIBUTING.md": ("project/contributing.md", "Contributing"),
    "CHANGELOG.md": ("project/changelog.md", "Changelog"),
}
"""Document -> path of its page, and its title in the navigation."""


def library(sources: Sources) -> Library:
    """Return the documents and folders of the repository that have a page."""
    pages = {document: place for document, (place, _) in DOCUMENTS.items()}
    pages |= {f"apps/{app}/README.md": f"apps/{app}.md" for app in sources.cards}
    pages["README.md"] = "index.md"
    folders = {
        "site/results": "results/index.md", "site/results/benchmarks": "results/benchmarks.md",
        "recipes": "recipes/index.md", "apps": "apps/index.md",
        "containers/variants": "images/building.md",
        "containers/selftests": "images/building.md#add-an-image",
    }
    for name in sources.recipes:
        folders[f"site/results/{name}"] = f"recipes/{name}.md"
    for image in sources.images:
        folders[f"site/results/images/{image.name}"] = f"images/{image.name}.md"
    return Library(pages, folders)


def pages(known: Library) -> list[Page]:
    """Return the pages of the site that show files of the repository, such as READMEs.

    `DOCUMENTS` lists these files.
    """
    return [
        Page(place, known.page(document), title) for document, (place, title) in DOCUMENTS.items()
    ]
