"""Define a generated page: its path, its text and its files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from generator import markdown
from generator.plots import Plot

TEMPLATES = Path(__file__).parents[1] / "templates"


@dataclass(frozen=True)
class Page:
    """One generated page.

    Attributes:
        place: path in the site: `recipes/chexnet/cpu-quickstart.md`.
        text: Markdown of the page.
        title: title in the navigation.
        section: heading in the navigation, "" for none; None: the page is not inserted, because
            `nav.yml` lists it, or because it is not in the navigation.
        plots: plots of the page.
        files: path in the site -> content of further files.
    """

    place: str
    text: str
    title: str
    section: str | None = None
    plots: tuple[Plot, ...] = ()
    files: Mapping[str, str | bytes] = field(default_factory=dict)

    def all_files(self) -> dict[str, str | bytes]:
        """Return the files that belong to the page."""
        found: dict[str, str | bytes] = dict(self.files)
        for plot in self.plots:
            found.update(plot.files())
        return found


def fill(template: str, page: str, **values: object) -> str:
    """Return the filled template of the page at the path `page`; unknown variables are errors."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - Markdown; what goes into HTML is escaped where it does
    )
    environment.globals["link"] = lambda to: markdown.link(page, to)
    for helper in (markdown.code, markdown.table, markdown.tabs, markdown.folded, markdown.moment,
                   markdown.chip, markdown.cell):
        environment.globals[helper.__name__] = helper
    return environment.get_template(template).render(values, page=page)
