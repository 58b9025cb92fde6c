"""Tests of pictures of curves: no empty panels, readable numbers, any number of points."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import pytest
from PIL import Image

from samples import CARD
from trimaran.report import curves
from trimaran.report.curves import draw
from trimaran.report.panels import collect
from trimaran.verdict.metrics_log import Event


def events(key: str, values: list[Any]) -> list[Event]:
    return [
        Event(time_ms=1, key=key, value=value, metadata={"step": step})
        for step, value in enumerate(values, start=1)
    ]


def texts(found: list[Event]) -> list[str]:
    """Return all texts of the SVG, which contains them as comments."""
    picture = draw("a run", collect(found, CARD))
    assert picture is not None
    assert Image.open(io.BytesIO(picture.png)).format == "PNG"
    return [text.strip() for text in re.findall(r"<!--(.*?)-->", picture.svg.decode())]


@pytest.mark.parametrize("count", [1, 3, 100])
def test_only_what_was_reported_has_a_panel(count: int) -> None:
    shown = texts(events("train_loss", [1.0] * count))
    assert "loss" in shown
    assert not {"evaluation top-1, %", "throughput, img/s"} & set(shown)


def test_nothing_reported_is_no_picture() -> None:
    for found in ([], events("train_loss", [math.nan, None, "x", 10**400])):
        assert draw("a run", collect(found, CARD)) is None


def test_a_logarithmic_axis_has_plain_numbers() -> None:
    shown = texts(events("train_loss", [2.3 * 0.95**n for n in range(100)]))
    assert {"0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"} <= set(shown)
    assert not [text for text in shown if "10^" in text or "times" in text]


def test_less_than_a_decade_is_no_logarithm() -> None:
    shown = texts(events("train_loss", [1.0, 2.0, 3.0]))
    assert {"1.5", "2.5"} <= set(shown)


def test_large_numbers_have_no_power_in_a_corner() -> None:
    assert "20,000" in texts(events("throughput", [21000.0, 22000.0]))


def test_a_value_that_is_none_or_huge_is_a_gap() -> None:
    values = [1.0, math.nan, 1e300, -1e300, None, 2.0]
    assert "loss" in texts(events("train_loss", values))


@pytest.mark.parametrize(("points", "possible"), [
    ([(1, 1.0), (2, 1.8), (4, 3.0)], [1, 2, 4]), ([(2, 1.0), (3, 1.4), (8, 3.0)], [1, 1.5, 4]),
])
def test_what_is_possible_is_as_many_times_as_the_first_has_nodes(
    points: list[tuple[int, float]], possible: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(curves, "_saved", drawn.append)
    curves.speedup("a series", points)
    linear, measured = drawn[0].axes[0].lines
    assert linear.get_xdata().tolist() == [nodes for nodes, _ in points]
    assert linear.get_ydata().tolist() == possible
    assert measured.get_ydata().tolist() == [found for _, found in points]
