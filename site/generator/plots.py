"""Draw the plots of a page as SVG, with caption, CSV and table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from generator import markdown
from trimaran.report import charts
from trimaran.report import rows as row_charts
from trimaran.report.page import asset, render
from trimaran.report.panels import Panel

FOLDER = "assets/plots"
STYLE = "assets/charts.css"

WIDTHS = {"desk": 648, "phone": 308}
"""CSS class of a drawing -> its width in pixels; `site.css` shows the drawing that fits."""

Row = Sequence[object]


class Lines(NamedTuple):
    """Lines to draw, with the arguments of `charts.chart`."""

    panel: Panel
    by: charts.By = "steps"
    unit: str = "step"
    doubling: bool = False


@dataclass(frozen=True)
class Plot:
    """One plot with its caption, alternative text and table.

    Attributes:
        name: base name of its files.
        drawing: what is drawn: lines over an axis, or one row with its value per item.
        alternative: alternative text for readers who do not see the plot.
        caption: how to read the plot, and the source of its numbers.
        head: heads of the table with the same numbers; a head with `:` at its end is numeric.
        rows: rows of the CSV file.
        brief: fewer rows for the table on the page; None: the table has all rows.
    """

    name: str
    drawing: Lines | row_charts.Table
    alternative: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Row]
    brief: Sequence[Row] | None = None

    def markdown(self, page: str) -> str:
        """Return the Markdown of the plot for `page`: drawings, caption, CSV and table."""
        place = markdown.link(page, f"{FOLDER}/{self.name}")
        drawn = [f'<div class="{name}" data-search-exclude>\n{self.html(width)}\n</div>'
                 for name, width in WIDTHS.items()]
        return "\n\n".join([
            '<figure class="plot" markdown>', *drawn,
            f"<figcaption markdown>\n{self.caption}\n"
            f'<span class="files">[CSV]({place}.csv)</span>\n</figcaption>',
            "</figure>",
            markdown.folded(self._title(), markdown.table(self.head, [
                [_linked(page, one) for one in row] for row in self._shown()]), "table"),
        ])

    def _shown(self) -> Sequence[Row]:
        return self.rows if self.brief is None else self.brief

    def _title(self) -> str:
        """Return the title of the table, with the number of rows if the CSV file has more rows."""
        shown, rows = len(self._shown()), len(self.rows)
        return "The same as a table" if shown == rows else (
            f"As a table: {shown} of the {rows} rows of the CSV file")

    def html(self, width: int) -> str:
        """Return the drawing with its title and legend."""
        drawn = (
            charts.chart(self.drawing.panel, self.drawing.by, self.drawing.unit, width=width,
                         doubling=self.drawing.doubling)
            if isinstance(self.drawing, Lines) else row_charts.drawing(self.drawing, width)
        )
        text = render("plot.html.j2", {"chart": drawn, "text": self.alternative})
        return "\n".join(line for line in text.splitlines() if line)  # a blank line ends the HTML

    def files(self) -> dict[str, str]:
        """Return the CSV file of the plot: path in the site -> content."""
        return {f"{FOLDER}/{self.name}.csv": self._csv()}

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([name.removesuffix(":") for name in self.head])
        writer.writerows(self.rows)
        return text.getvalue()


def _linked(page: str, cell: object) -> str:
    """Return a cell of a table in which each file of evidence is a link."""
    return _EVIDENCE.sub(
        lambda found: f"[{found[1]}]({markdown.link(page, f'files/{found[0]}')})", str(cell))


_EVIDENCE = re.compile(r"site/results/(?:[\w.-]+/)+([\w.-]+)\.json")


def shared() -> dict[str, str]:
    """Return the files that all plots share: the style sheet, which reports also use."""
    return {STYLE: asset("charts.css")}
