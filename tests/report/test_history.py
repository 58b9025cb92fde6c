"""Tests of earlier evidence in a report: selection of runs, and comparison with this run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from finished import SIF, finish
from trimaran import paths
from trimaran.evidence import writing
from trimaran.recipes.library import RecipeFile
from trimaran.report import history, report
from trimaran.verdict import run_verdict
from trimaran.verdict.run_verdict import JudgedRun

NAME = "resnet-imagenet/cpu-smoke"


@pytest.fixture
def judged(recipe: RecipeFile, own_place: Path) -> JudgedRun:
    """Return a judged run in a container; its accuracy of 95 % passes."""
    finish(own_place / "run", recipe, 0.95, image=SIF)
    return run_verdict.judge(own_place / "run")


def publish(
    judged: JudgedRun, folder: Path, name: str, top1: float = 90.0, day: int = 1, **changed: Any
) -> Path:
    """Write evidence of the run `judged`, with the given day and accuracy (`top1`, in %).

    `changed` contains the changed arguments of the recipe. Return the path of the file.
    """
    file = folder / "site/results" / NAME / f"{name}.json"
    writing.write(judged.directory, judged.record, judged.verdict, file)
    content = json.loads(file.read_text())
    content["run"]["started"] = f"2026-01-{day:02}T00:00:00Z"
    content["run"]["recipe"]["changed"] = changed
    content["verdict"]["rows"][0]["measured"] = top1
    content["curves"] = []  # they end with another accuracy
    file.write_text(json.dumps(content))
    return file


def find(judged: JudgedRun) -> history.Earlier:
    record = judged.record
    return history.find(judged.recipe, record.recipe.changed, record.started)


def test_runs_are_found_with_the_newest_first_and_seeds_change_nothing(
    judged: JudgedRun, checkout: Path
) -> None:
    publish(judged, checkout, "a", day=1)
    publish(judged, checkout, "b", day=3, seed=4)
    publish(judged, checkout, "c", day=2, epochs=1)  # as the recipe has it
    publish(judged, checkout, "d", day=4, epochs=9)
    found = find(judged)
    assert [one.day.day for one in found.runs] == [3, 2, 1]
    assert found.others == 1


def test_its_own_evidence_is_not_earlier(judged: JudgedRun, checkout: Path) -> None:
    file = checkout / "site/results" / NAME / "own.json"
    writing.write(judged.directory, judged.record, judged.verdict, file)
    assert find(judged).runs == []


def test_folders_of_ones_own_have_evidence_too(
    judged: JudgedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own/recipes").mkdir(parents=True)
    monkeypatch.setenv(paths.OWN, str(tmp_path / "own"))
    publish(judged, tmp_path / "own", "a")
    assert len(find(judged).runs) == 1


def test_what_cannot_be_read_is_told_and_stops_nothing(judged: JudgedRun, checkout: Path) -> None:
    publish(judged, checkout, "a").write_text("{")
    publish(judged, checkout, "b")
    report.write(judged.directory)
    for name in ("report.md", "report.html"):
        text = (judged.directory / name).read_text()
        assert "unreadable evidence" in text
        assert "a.json" in text
    assert len(find(judged).runs) == 1


def test_the_report_says_date_machine_and_image_of_each(judged: JudgedRun, checkout: Path) -> None:
    publish(judged, checkout, "a", 92.0, day=1)
    publish(judged, checkout, "b", 93.0, day=2)
    report.write(judged.directory)
    text = (judged.directory / "report.md").read_text()
    assert "val\\_top1: 95.00 %, above those of 2 earlier runs (92.00 % to 93.00 %)" in text
    [row] = [line for line in text.splitlines() if line.startswith("| 2026-01-02")]
    assert "sha256:efefefefefef… (the same)" in row
    assert f"{judged.record.host.cores} cores of {judged.record.host.processor}" in row
    assert "93.00 %" in row
    assert "trimaran compare" in text


@pytest.mark.parametrize(
    ("values", "where"), [((94.0, 96.0), "among"), ((96.0, 97.0), "below"), ((90.0,), None)]
)
def test_where_the_run_stands(
    judged: JudgedRun, checkout: Path, values: tuple[float, ...], where: str | None
) -> None:
    for day, value in enumerate(values, start=1):
        publish(judged, checkout, f"of-day-{day}", value, day=day)
    record, card = judged.record, judged.recipe.card.card
    said = history.standing(judged.verdict.rows[0], card, record.host, find(judged))
    assert said is None if where is None else where in str(said)


def test_speed_is_compared_on_such_a_machine_only(judged: JudgedRun, checkout: Path) -> None:
    for day in (1, 2, 3):
        path = publish(judged, checkout, f"of-day-{day}", day=day)
        if day < 3:
            path.write_text(path.read_text().replace('"cores": ', '"cores": 7'))
    record, card = judged.record, judged.recipe.card.card
    [row] = [row for row in judged.verdict.rows if row.metric == "throughput"]
    assert history.standing(row, card, record.host, find(judged)) is None
    publish(judged, checkout, "one-more", day=4)
    said = history.standing(row, card, record.host, find(judged))
    assert "among those of 2 earlier runs on such a machine" in str(said)


@pytest.mark.parametrize(("values", "where"), [
    ((95.0, 96.0), "among"), ((94.0, 95.0), "among"), ((95.1, 96.0), "below"),
    ((90.0, 94.9), "above"), ((90.0, 99.0, 94.0), "among"),
])
def test_the_ends_of_the_range_belong_to_it(
    judged: JudgedRun, checkout: Path, values: tuple[float, ...], where: str
) -> None:
    """A value that equals the smallest or the largest earlier value is "among" the earlier ones.

    The runs are from different machines, which is irrelevant for an accuracy.
    """
    for day, value in enumerate(values, start=1):
        path = publish(judged, checkout, f"of-day-{day}", value, day=day)
        path.write_text(path.read_text().replace('"cores": ', '"cores": 7'))
    record, card = judged.record, judged.recipe.card.card
    said = history.standing(judged.verdict.rows[0], card, record.host, find(judged))
    assert said == (
        f"val_top1: 95.00 %, {where} those of {len(values)} earlier runs"
        f" ({min(values):.2f} % to {max(values):.2f} %)"
    )


def test_values_at_another_moment_are_other_numbers(judged: JudgedRun, checkout: Path) -> None:
    for day in (1, 2):
        path = publish(judged, checkout, f"of-day-{day}", day=day)
        content = json.loads(path.read_text())
        content["verdict"]["rows"][0]["at"] = "best"
        path.write_text(json.dumps(content))
    record, card = judged.record, judged.recipe.card.card
    assert history.standing(judged.verdict.rows[0], card, record.host, find(judged)) is None
