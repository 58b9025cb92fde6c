"""Plots as Vega-Lite draws them: still pictures at the build, interactive ones in the browser.

A plot is one specification. Its pictures are drawn here for light and dark pages; the same
specification is drawn anew in the page by Vega's own scripts, which vl-convert brings along.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from generator import markdown

FOLDER = "assets/plots"
SCRIPT = "assets/vega.js"
VEGA_LITE = "6.4"

COLORS = {
    "light": ["#0072B2", "#D55E00", "#007A58", "#A8447F", "#8A6100", "#2F6F8F", "#1b1f24"],
    "dark": ["#56B4E9", "#F08A3C", "#3DC79B", "#E59CC6", "#E6B84C", "#9CCBE5", "#E6EDF3"],
}
"""Okabe and Ito's order, which readers with any colour vision tell apart, as dark or as light as
the page needs."""

INK = {"light": ("#1b1f24", "#57606a", "#d0d7de"), "dark": ("#e6edf3", "#adb5bd", "#3b434d")}
"""Titles, labels, and grid of a light and of a dark page."""

Row = Sequence[object]


@dataclass(frozen=True)
class Plot:
    """One plot with all that is shown of it.

    Attributes:
        name: of its files.
        spec: the specification in Vega-Lite, without colours and size.
        alternative: what it shows, for those who do not see it.
        caption: what to read from it, and where its numbers are from.
        head: of the table with the same numbers; a column that ends with `:` is of numbers.
        rows: the table.
    """

    name: str
    spec: Mapping[str, Any]
    alternative: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Row]

    def markdown(self, page: str) -> str:
        """Return it for the page at `page`: pictures, caption, files, and the table."""
        place = markdown.link(page, f"{FOLDER}/{self.name}")
        alt = self.alternative.replace('"', "'")
        return "\n\n".join([
            f'<figure class="plot" data-plot="{self.name}" markdown>',
            f"![{alt}]({place}-light.svg#only-light){{ .still loading=lazy }}\n"
            f"![{alt}]({place}-dark.svg#only-dark){{ .still loading=lazy }}",
            f"<figcaption markdown>\n{self.caption}\n"
            f'<span class="files">[picture]({place}-light.svg) [CSV]({place}.csv)'
            f" [Vega-Lite]({place}.vl.json)</span>\n</figcaption>",
            "</figure>",
            markdown.folded("The same as a table", markdown.table(self.head, [
                [_linked(page, one) for one in row] for row in self.rows]), "table"),
        ])

    def files(self) -> dict[str, str]:
        """Return its files by their places in the site."""
        place = f"{FOLDER}/{self.name}"
        found = {f"{place}-{mode}.svg": self._svg(mode) for mode in COLORS}
        whole = {**self.spec, "description": self.alternative, "width": "container"}
        return {**found, f"{place}.vl.json": json.dumps(whole), f"{place}.csv": self._csv()}

    def _svg(self, mode: str) -> str:
        size = {"width": 640, **{key: self.spec[key] for key in ("width",) if key in self.spec}}
        import vl_convert  # of `make site` alone: the unit tests of the generator draw nothing

        drawn = {**self.spec, **size, "description": self.alternative, "config": config(mode)}
        return str(vl_convert.vegalite_to_svg(drawn, vl_version=VEGA_LITE))

    def _csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([name.removesuffix(":") for name in self.head])
        writer.writerows(self.rows)
        return text.getvalue()


def _linked(page: str, cell: object) -> str:
    """Return a cell of a table where each file of evidence that it names is a link to it."""
    return _EVIDENCE.sub(
        lambda found: f"[{found[1]}]({markdown.link(page, f'files/{found[0]}')})", str(cell))


_EVIDENCE = re.compile(r"site/results/(?:[\w.-]+/)+([\w.-]+)\.json")


def encoding(field: str, kind: str, title: str | None = None, **more: object) -> dict[str, Any]:
    """Return how a field is shown on an axis, by a colour or in a tooltip."""
    return {"field": field, "type": kind, "title": title or field, **more}


def config(mode: str) -> dict[str, Any]:
    """Return Vega's settings for a light or a dark page; `plots.js` has them from `themes`."""
    title, label, grid = INK[mode]
    text = {"labelColor": label, "titleColor": title, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": None,
        "font": "Inter, system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {**text, "gridColor": grid, "domainColor": grid, "tickColor": grid,
                 "titleFontWeight": 600, "titlePadding": 10},
        "legend": {**text, "orient": "top", "title": None, "symbolStrokeWidth": 2,
                   "labelLimit": 400},
        "header": {**text, "titleFontWeight": 600},
        "range": {"category": COLORS[mode]},
        "axisX": {"tickCount": 5},
        "mark": {"tooltip": True, "color": COLORS[mode][0]},
        "line": {"strokeWidth": 2},
        "rule": {"color": label},
        "text": {"color": title, "fontSize": 12},
        "title": {"color": title, "anchor": "start", "fontSize": 13},
    }


def shared() -> dict[str, str]:
    """Return what all plots share: Vega's scripts, and the settings of both kinds of pages."""
    import vl_convert

    snippet = "window.vegaEmbed = vegaEmbed;"
    return {
        SCRIPT: str(vl_convert.javascript_bundle(snippet, vl_version=VEGA_LITE)),
        f"{FOLDER}/themes.json": json.dumps({mode: config(mode) for mode in COLORS}),
    }
