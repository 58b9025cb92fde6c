"""Write the complete source of the site into one folder: hand-written and generated pages.

The source is plain Markdown with a `mkdocs.yml`, so that the site builder can be replaced.
"""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from generator import (
    adopt,
    apps,
    cite,
    documents,
    images,
    machines,
    markdown,
    navigation,
    pictures,
    plots,
    recipes,
    reference,
    results,
    sources,
    suites,
    targets,
)
from generator.evidence import AllEvidence
from generator.pages import Page
from generator.sources import Sources
from trimaran import paths
from trimaran.parsing import parse_yaml


def write(folder: Path, today: dt.date | None = None) -> None:
    """Write the source of the site into `folder`; its previous content is deleted.

    Args:
        folder: the folder to write.
        today: evidence that is more than 12 months older than this date counts as stale; None:
            the current date.

    Raises:
        UsageError: Evidence, a definition or a page has faults; the message has file, line and
            reason.
    """
    read = sources.read(today)
    known = documents.library(read)
    made = pages(read, known)
    files = _files(made, read.shelf, known)
    own = paths.repository() / "site"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(own / "docs", folder / "docs")
    shutil.copytree(own / "overrides", folder / "overrides")
    (folder / "mkdocs.yml").write_text(settings(made), encoding="utf-8")
    for page in sorted((folder / "docs").rglob("*.md")):
        _fill(page, folder / "docs", read)
    for place, content in files.items():
        path = folder / "docs" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if place.endswith(".md") and isinstance(content, str):
            content = markdown.named_heads(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def pages(read: Sources, known: adopt.Library) -> list[Page]:
    """Return all generated pages, including the pages made from documents of the repository."""
    return [
        *recipes.pages(read), *results.pages(read), suites.page(read.shelf), *images.pages(read),
        *apps.pages(read, known), *documents.pages(known), *reference.pages(), targets.page(),
        machines.page(read),
    ]


def _files(
    pages: list[Page], shelf: AllEvidence, known: adopt.Library
) -> dict[str, str | bytes]:
    """Return all generated files: path in the site -> content."""
    found: dict[str, str | bytes] = {**plots.shared(), **pictures.files()}
    for page in pages:
        found[page.place] = page.text
        found.update(page.all_files())
    evidence = {
        piece.path for kind in (shelf.runs, shelf.images, shelf.benchmarks, shelf.suites)
        for pieces in kind.values() for piece in pieces
    }
    return {**found, **adopt.contents(known.taken | evidence)}


def settings(pages: list[Page]) -> str:
    """Return the text of `mkdocs.yml` with the navigation.

    If `mike`, which publishes several versions of a site, builds the site, the text also has the
    setting for its menu of versions.
    """
    own = paths.repository() / "site"
    entries: Any = parse_yaml((own / "nav.yml").read_text(encoding="utf-8")).content
    text = (own / "mkdocs.yml").read_text(encoding="utf-8")
    if os.environ.get("TRIMARAN_SITE_VERSIONS"):
        text = text.replace("extra: {", "extra: {version: {provider: mike}, ")
    return text + yaml.safe_dump({"nav": navigation.expand(entries, pages)}, sort_keys=False)


def _fill(page: Path, docs: Path, read: Sources) -> None:
    place = str(page.relative_to(docs))
    text = cite.Page(place, read).fill(page.read_text(encoding="utf-8"))
    page.write_text(markdown.named_heads(text), encoding="utf-8")
