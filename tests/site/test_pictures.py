"""Every word in the drawings is legible on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from generator import pictures

PAGE = {"light": "#ffffff", "dark": "#0f151c"}
"""The background colour of a page, as in `site.css`."""
SVG = "{http://www.w3.org/2000/svg}"


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2.1, in [0, 1]."""
    digits = colour.removeprefix("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours by WCAG 2.1, from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def words(drawing: str, page: str) -> Iterator[tuple[str, str, str]]:
    """Yield every text of a drawing, its colour, and the colour of the topmost box behind it."""
    root = ElementTree.fromstring(drawing)  # noqa: S314 - our own
    above = {child: parent for parent in root.iter() for child in parent}
    boxes: list[tuple[float, float, float, float, str]] = []
    for item in root.iter():
        if item.tag == f"{SVG}rect":
            x, y, width, height = (
                float(item.get(key, "0")) for key in ("x", "y", "width", "height"))
            boxes.append((x, y, x + width, y + height, item.get("fill", "")))
        elif item.tag == f"{SVG}text":
            x, y = float(item.get("x", "")), float(item.get("y", ""))
            ground = [fill for left, top, right, low, fill in boxes
                      if left <= x <= right and top <= y <= low and fill != "none"]
            colour = item.get("fill") or above[item].get("fill") or "#000000"
            yield item.text or "", colour, ground[-1] if ground else page


@pytest.mark.parametrize("name", pictures.DRAWN)
@pytest.mark.parametrize("page", PAGE)
def test_every_word_has_contrast(name: str, page: str) -> None:
    drawing = str(pictures.files()[f"assets/{name}-{page}.svg"])
    found = list(words(drawing, PAGE[page]))
    assert len(found) > 15
    weak = [(text, colour, ground) for text, colour, ground in found
            if contrast(colour, ground) < 4.5]
    assert weak == []


def test_the_contrast_is_that_of_wcag() -> None:
    assert contrast("#000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#fff") == pytest.approx(4.48, abs=0.01)
