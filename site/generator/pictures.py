"""Recolour the SVG drawings of the repository for dark pages."""

from __future__ import annotations

from trimaran import paths

DARK = {
    "#ffffff": "none",
    "#1b1f24": "#e6edf3", "#424a53": "#c3cad1", "#57606a": "#adb5bd", "#8c959f": "#8b949e",
    "#d0d7de": "#3b434d", "#f6f8fa": "#1c2128", "#ddf4ff": "#10293b", "#fff4e5": "#38230f",
    "#e6f6f0": "#0f2f26",
}
"""Colour of a drawing -> colour on a dark page."""

DRAWN = {
    "way": "site/docs/way.svg", "way-tall": "site/docs/way-tall.svg",  # way-tall: for phones
    "graph": "containers/graph.svg",
}


def files() -> dict[str, str | bytes]:
    """Return the drawings for light and for dark pages: path in the site -> SVG text."""
    found: dict[str, str | bytes] = {}
    for name, source in DRAWN.items():
        text = (paths.repository() / source).read_text(encoding="utf-8")
        found[f"assets/{name}-light.svg"] = text
        for light, dark in DARK.items():
            text = text.replace(light, dark)
        found[f"assets/{name}-dark.svg"] = text
    return found
