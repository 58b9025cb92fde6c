"""Tests of charts with one row per value: positions of dots, ranges, marked values and texts."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import quick
from trimaran.report import page
from trimaran.report.rows import Dot, Row, Table, drawing

WIDTHS = pytest.mark.parametrize("width", [648, 308])
TABLE = Table("ratio", [
    Row("ours / stock", [Dot(1.5, "1.4 to 1.6", "met", 1.4, 1.6)], 1.2, "1.5"),
    Row("a name that is much too long for one line of a drawing", [Dot(0.5, "half", "missed")]),
], ("met", "missed", "unused"), zero=True)


@WIDTHS
def test_values_are_placed_on_one_axis(width: int) -> None:
    drawn = drawing(TABLE, width)
    first, second = drawn.rows
    [dot], [other] = first.dots, second.dots
    assert dot.range is not None
    assert first.mark is not None
    assert other.x < first.mark < dot.range[0] < dot.x < dot.range[1] == first.end
    zero = next(tick for tick in drawn.x if tick.text == "0")
    half = next(tick for tick in drawn.x if tick.text == "0.5")
    assert half.place == pytest.approx(other.x, abs=0.1)
    assert dot.x - zero.place == pytest.approx(3 * (half.place - zero.place), abs=0.2)
    assert (dot.color, other.color) == (0, 1)
    assert drawn.keys == [(0, "met"), (1, "missed")]


def test_on_a_phone_names_stand_above_their_rows() -> None:
    wide, narrow = (drawing(TABLE, width) for width in (648, 308))
    assert narrow.names == 0
    assert (wide.anchor, narrow.anchor) == ("end", "start")
    for row in narrow.rows:
        assert row.y > row.top + 15 * len(row.lines)
    assert narrow.height > wide.height
    assert " ".join(narrow.rows[1].lines) == TABLE.rows[1].name


def test_a_text_does_not_stand_on_the_marked_value() -> None:
    rows = [Row("near", [Dot(1, "")], 1.05, "1.00"), Row("far", [Dot(1, "")], 3, "1.00")]
    near, far = drawing(Table("ratio", rows, zero=True), 648).rows
    assert near.end == near.mark
    assert far.end == far.dots[0].x


def test_a_logarithmic_axis_has_equal_distances_for_equal_ratios() -> None:
    rows = [Row(str(value), [Dot(value, "")]) for value in (1, 10, 100)]
    drawn = drawing(Table("img/s", rows, log=True), 648)
    places = [row.dots[0].x for row in drawn.rows]
    assert (drawn.x[0].text, drawn.x[0].place) == ("1", places[0])
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)


@quick
@given(st.lists(st.floats(-1e29, 1e29), min_size=1, max_size=9), st.booleans(), st.booleans())
def test_everything_is_within_the_drawing(values: list[float], log: bool, zero: bool) -> None:
    rows = [Row("name " * place, [Dot(value, "tip")], value, "text")
            for place, value in enumerate(values, 1)]
    for width in (648, 308):
        drawn = drawing(Table("title", rows, log=log, zero=zero), width)
        for row in drawn.rows:
            assert drawn.box[0] <= row.dots[0].x <= drawn.box[1]
            assert 0 < row.y < drawn.box[2] < drawn.height
        for left, right in zip(drawn.x, drawn.x[1:], strict=False):
            assert right.place - left.place > 3 * (len(left.text) + len(right.text))


@WIDTHS
def test_names_and_tips_are_escaped(width: int) -> None:
    table = Table("<t>", [Row("<b>&", [Dot(1, '"<tip>"', "<g>")], text="<1>")], ["<g>"])
    text = page.render("plot.html.j2", {"chart": drawing(table, width), "text": "<alt>"})
    root = ElementTree.fromstring(text)  # noqa: S314 - our own
    assert "".join(root.itertext()).split() == ["<t>", *_ticks(root), "<b>&", '"<tip>"', "<1>",
                                                "<g>"]


def _ticks(root: ElementTree.Element) -> list[str]:
    return [str(text.text) for text in root.findall(".//g[@class='x']/text")]
