"""Draw plots by Vega-Lite: static pictures at the build, interactive plots in the browser.

A plot is one specification. Its static pictures are drawn here for light and dark pages. Scripts of
Vega, which are part of vl-convert, draw the same specification in the browser.
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
"""The colours of Okabe and Ito, whose order suits any colour vision, adapted to light and to dark
pages."""

INK = {"light": ("#1b1f24", "#57606a", "#d0d7de"), "dark": ("#e6edf3", "#adb5bd", "#3b434d")}
"""Colours of titles, labels and grid on light and on dark pages."""

Row = Sequence[object]


@dataclass(frozen=True)
class Plot:
    """One plot with its caption, alternative text and table.

    Attributes:
        name: base name of its files.
        spec: specification in Vega-Lite, without colours and size.
        alternative: alternative text for readers who do not see the plot.
        caption: how to read the plot, and the source of its numbers.
        head: heads of the table with the same numbers; a head with `:` at its end is numeric.
        rows: rows of the table.
    """

    name: str
    spec: Mapping[str, Any]
    alternative: str
    caption: str
    head: Sequence[str]
    rows: Sequence[Row]

    def markdown(self, page: str) -> str:
        """Return the Markdown of the plot for `page`: pictures, caption, files and table."""
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
        """Return path in the site -> file of the plot."""
        place = f"{FOLDER}/{self.name}"
        found = {f"{place}-{mode}.svg": self._svg(mode) for mode in COLORS}
        whole = {**self.spec, "description": self.alternative, "width": "container"}
        return {**found, f"{place}.vl.json": json.dumps(whole), f"{place}.csv": self._csv()}

    def _svg(self, mode: str) -> str:
        size = {"width": 640, **{key: self.spec[key] for key in ("width",) if key in self.spec}}
        import vl_convert  # imported here, because unit tests of the generator draw nothing

        drawn = {**self.spec, **size, "description": self.alternative, "config": config(mode)}
        return str(vl_convert.vegalite_to_svg(drawn, vl_version=VEGA_LITE))

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


def encoding(field: str, kind: str, title: str | None = None, **more: object) -> dict[str, Any]:
    """Return the Vega-Lite encoding of a field for an axis, a colour or a tooltip."""
    return {"field": field, "type": kind, "title": title or field, **more}


def config(mode: str) -> dict[str, Any]:
    """Return the Vega settings of a light or dark page; `plots.js` reads `themes.json`."""
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
    """Return the files that all plots share: Vega's scripts, and the settings of pages."""
    import vl_convert

    snippet = "window.vegaEmbed = vegaEmbed;"
    return {
        SCRIPT: str(vl_convert.javascript_bundle(snippet, vl_version=VEGA_LITE)),
        f"{FOLDER}/themes.json": json.dumps({mode: config(mode) for mode in COLORS}),
    }
