"""Tests of curves in a page: round ticks, complete paths, and values for the page's JavaScript."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostile import quick
from trimaran.recipes.cards import AxisKind
from trimaran.report.charts import BOTTOM, LEFT, RIGHT, TOP, Axis, Chart, charts, number
from trimaran.report.charts import chart as chart_of
from trimaran.report.panels import Line, Panel, Point


def panel(values: list[float], axis: AxisKind = "plain", *, every: float = 1.0) -> Panel:
    points = [Point(10 * step, every * step, value) for step, value in enumerate(values)]
    return Panel("loss", axis, [Line("training", points, 0)])


def one(values: list[float], axis: AxisKind = "plain") -> Chart:
    return charts([panel(values, axis)])[0]


def test_each_panel_is_drawn_over_steps_and_over_time() -> None:
    found = charts([panel([1.0, 2.0]), panel([3.0, 4.0])])
    assert [chart.by for chart in found] == ["steps", "steps", "time", "time"]
    assert json.loads(found[0].curves[0].numbers) == [[0, 1], [10, 2]]
    assert json.loads(found[2].curves[0].numbers) == [[0, 1], [1, 2]]


def test_a_run_that_tells_no_times_has_no_axis_of_time() -> None:
    assert [chart.by for chart in charts([panel([1.0, 2.0], every=0.0)])] == ["steps"]


@pytest.mark.parametrize(
    ("seconds", "unit"), [(100.0, "s"), (1000.0, "min"), (100_000.0, "h")]
)
def test_time_is_told_in_the_unit_that_people_would_use(seconds: float, unit: str) -> None:
    assert charts([panel([1.0, 2.0], every=seconds)])[1].unit == unit


@pytest.mark.parametrize(
    ("values", "axis", "ticks"),
    [
        ([0.0, 100.0], "plain", ["0", "20", "40", "60", "80", "100"]),
        ([1500.0, 900.0], "from-zero", ["0", "500", "1,000", "1,500"]),
        ([2.3, 0.02], "log", ["0.02", "0.05", "0.1", "0.2", "0.5", "1", "2"]),
        ([1e5, 1e-5], "log", ["0.0001", "0.01", "1", "100", "10,000"]),
        ([3.0], "plain", ["2.8", "3", "3.2"]),
    ],
)
def test_ticks_are_round(values: list[float], axis: AxisKind, ticks: list[str]) -> None:
    shown = [tick.text for tick in one(values, axis).y]
    assert [tick for tick in ticks if tick not in shown] == []


def test_a_gap_begins_the_path_anew() -> None:
    curve = one([1.0, math.nan, 2.0, 3.0]).curves[0]
    assert re.sub(r"[^ML]", "", curve.path) == "MML"
    assert len(json.loads(curve.numbers)) == 3


def test_few_points_are_marked_and_the_picture_is_told_in_words() -> None:
    chart = one([2.5, 1000.0])
    assert len(chart.curves[0].marks) == 2
    assert one([float(step) for step in range(100)]).curves[0].marks == []
    assert chart.text == "loss over steps: training from 2.5 to 1,000"


@quick
@given(st.lists(st.floats(-1e29, 1e29), min_size=1, max_size=20),
       st.sampled_from(["plain", "log", "from-zero"]))
def test_every_point_and_tick_is_within_the_axes(values: list[float], axis: AxisKind) -> None:
    for chart in charts([panel(values, axis)]):
        for mark in chart.curves[0].marks:
            assert LEFT <= mark.x <= RIGHT
            assert TOP <= mark.y <= BOTTOM
        assert all(TOP <= tick.place <= BOTTOM for tick in chart.y)
        assert all(LEFT <= tick.place <= RIGHT for tick in chart.x)
        assert len(chart.y) <= 25
        json.loads(chart.scale, parse_constant=pytest.fail)


def test_an_axis_turns_values_into_places() -> None:
    assert [Axis(0, 10, 100, 200).place(value) for value in (0, 5, 10)] == [100, 150, 200]
    assert Axis(1, 100, 0, 100, log=True).place(10) == 50


@pytest.mark.parametrize(
    ("value", "text"), [(2500, "2,500"), (0.05, "0.05"), (1 / 3, "0.3333"), (-4, "-4")]
)
def test_numbers_are_written_as_people_do(value: float, text: str) -> None:
    assert number(value) == text


def test_devices_have_an_axis_with_powers_of_two() -> None:
    points = [Point(devices, 0, float(devices)) for devices in (1, 8, 64)]
    drawn = chart_of(Panel("img/s", "log", [Line("published", points, 0)]), doubling=True)
    assert [tick.text for tick in drawn.x] == ["1", "2", "4", "8", "16", "32", "64"]
    first, middle, last = (mark.x for mark in drawn.curves[0].marks)
    assert middle - first == pytest.approx(last - middle, abs=0.2)


@pytest.mark.parametrize(("width", "texts"), [
    (648, ["0", "500,000", "1,000,000", "1,500,000", "2,000,000"]),
    (250, ["0", "1,000,000", "2,000,000"]),
])
def test_texts_of_the_horizontal_axis_do_not_touch(width: int, texts: list[str]) -> None:
    points = [Point(step, 0, 1.0) for step in (0, 2_000_000)]
    drawn = chart_of(Panel("loss", "plain", [Line("training", points, 0)]), width=width)
    assert [tick.text for tick in drawn.x] == texts


def test_lines_with_the_same_label_have_one_entry_in_the_legend_and_own_tooltips() -> None:
    lines = [Line("as the recipe has it", [Point(1, 0, 0.5)], 0, f"seed {seed}") for seed in (1, 2)]
    drawn = chart_of(Panel("loss", "plain", lines))
    assert drawn.keys == [(0, "as the recipe has it")]
    assert [curve.tip for curve in drawn.curves] == ["seed 1", "seed 2"]
    assert drawn.curves[1].marks[0].tip == "seed 2, 1 step: 0.5"
