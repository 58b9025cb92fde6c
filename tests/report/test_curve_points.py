"""Tests of the curves in evidence: units, thinned points, and rounded values."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from finished import SIF, finish
from samples import CARD
from trimaran.evidence import writing
from trimaran.recipes.library import RecipeFile
from trimaran.report import panels, report
from trimaran.verdict.metrics import Event


def events(count: int) -> list[Event]:
    """Return the events of a run that starts at 10 s, and evaluates once per step, every 0.5 s."""
    return [
        Event(time_ms=10_000, key="run_start"),
        *(
            Event(time_ms=10_000 + 500 * step, key="eval_accuracy", value=step / count,
                  metadata={"step": step})
            for step in range(1, count + 1)
        ),
    ]


def test_a_metric_is_kept_over_steps_and_seconds_in_its_unit() -> None:
    found = panels.kept_curves(events(4), CARD)
    assert [(one.metric, one.unit) for one in found] == [("val_top1", "%")]
    assert found[0].points == [(1, 0.5, 25.0), (2, 1.0, 50.0), (3, 1.5, 75.0), (4, 2.0, 100.0)]


def test_many_points_are_thinned_and_the_ends_stay() -> None:
    points = panels.kept_curves(events(1000), CARD)[0].points
    assert len(points) == panels.MOST_KEPT
    assert (points[0][0], points[-1][0]) == (1, 1000)
    gaps = [after[0] - before[0] for before, after in itertools.pairwise(points)]
    assert max(gaps) - min(gaps) <= 1


def test_without_a_start_no_seconds_are_known() -> None:
    assert panels.kept_curves(events(4)[1:], CARD) == []


def test_evidence_has_the_curves(recipe: RecipeFile, own_place: Path) -> None:
    directory, file = own_place / "run", own_place / "evidence.json"
    finish(directory, recipe, 0.95, image=SIF)
    writing.write(directory, *report.write(directory), file)
    curves = {one["metric"]: one["points"] for one in json.loads(file.read_text())["curves"]}
    assert curves["val_top1"][-1][2] == 95


def test_values_have_six_digits() -> None:
    """Values are thirds and sevenths in percent, compared with decimals rounded by hand."""
    points = [point for one in panels.kept_curves(events(7), CARD) for point in one.points]
    assert [value for _, _, value in points] == [
        14.2857, 28.5714, 42.8571, 57.1429, 71.4286, 85.7143, 100.0
    ]


def test_points_are_taken_at_even_distances() -> None:
    points = [(step, float(step), 0.0) for step in range(239)]
    assert panels.MOST_KEPT == 120
    assert panels.evenly(points) == points[::2]
