"""Test that no page of the built site shows a number in scientific notation."""

from __future__ import annotations

import re
from pathlib import Path

SCIENTIFIC = re.compile(r"(?<![\w.])\d[\d.]*e\+\d+")
"""A large number as a program writes it, such as 1.37e+03; people write 1,370."""


def faults(site: Path) -> list[str]:
    """Return every number in scientific notation in the text of a page, with its page."""
    return [
        f"{path.relative_to(site)}: {found[0]}" for path in sorted(site.rglob("*.html"))
        for found in SCIENTIFIC.finditer(re.sub(r"<[^>]*>", " ", path.read_text()))
    ]


def test_no_page_shows_a_number_with_an_exponent(built: Path) -> None:
    assert faults(built) == []


def test_such_a_number_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="1e+03">1.37e+03 img/s<sup>1</sup>, 5e-05, abc2e+09, <b>2e+4</b></p>')
    assert faults(tmp_path) == ["a.html: 1.37e+03", "a.html: 2e+4"]
