"""The status of recipes, from their sources and evidence; a published number needs a year."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from finished import SIF, finish
from generator import evidence, recipe_status
from refusals import refused
from samples import GOOD
from trimaran.errors import UsageError
from trimaran.evidence import writing
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.report import report

MEASURED = {"date": "2026-11-01", "host": "a host", "command": "c", "seeds": {1: 90.0},
            "image_digest": None}
EXPECTED = GOOD["expected"][0] | {"source": "A paper (2019)"}


def recipe_file(checkout: Path, expected: list[dict[str, Any]]) -> RecipeFile:
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({**GOOD, "expected": expected}))
    return library.load("resnet-imagenet/cpu-smoke")


def only() -> recipe_status.RecipeStatus:
    found = recipe_status.all_of(evidence.read())
    assert len(found) == 1
    return found[0]


def add_run(checkout: Path, recipe: RecipeFile, accuracy: float, **changed: int) -> Path:
    directory = checkout / f"run-{accuracy}"
    record = finish(directory, recipe, accuracy, dict(changed), SIF)
    file = checkout / evidence.RESULTS / recipe.name / f"{record.started.date()}-a-{accuracy}.json"
    writing.write(directory, *report.write(directory), file)
    return file


def test_what_nobody_has_measured_is_open(checkout: Path) -> None:
    recipe_file(checkout, [])
    assert only().status == "open"


def test_a_number_of_a_publication_has_its_source_and_year(checkout: Path) -> None:
    recipe_file(checkout, [EXPECTED])
    found = only()
    assert found.status == "published"
    number = found.numbers[0]
    assert (number.text, number.accepted) == ("90 %", "at least 89.10 %")
    assert (number.source, number.year, number.date) == ("A paper (2019)", 2019, None)


def test_a_number_of_our_own_has_its_machine_and_day(checkout: Path) -> None:
    recipe_file(checkout, [EXPECTED | {"source": None, "measured": MEASURED}])
    found = only()
    assert found.status == "measured"
    assert found.numbers[0].source == "measured on a host"
    assert str(found.numbers[0].date) == "2026-11-01"


def test_a_run_that_passed_reproduces_it_and_one_that_failed_does_not(checkout: Path) -> None:
    recipe = recipe_file(checkout, [EXPECTED])
    add_run(checkout, recipe, 0.5)
    assert only().status == "measured"
    add_run(checkout, recipe, 0.95)
    assert only().status == "reproduced"


def test_a_changed_run_is_evidence_and_none_of_the_recipe_as_it_stands(checkout: Path) -> None:
    recipe = recipe_file(checkout, [EXPECTED])
    add_run(checkout, recipe, 0.95, epochs=2)
    add_run(checkout, recipe, 0.96, seed=2)
    found = only()
    assert len(found.runs) == 2
    assert [piece.content.run.recipe.changed for piece in found.own_runs()] == [{"seed": 2}]


def test_an_earlier_wording_that_was_another_experiment_does_not_count(checkout: Path) -> None:
    recipe = recipe_file(checkout, [EXPECTED])
    add_run(checkout, recipe, 0.95)
    now = recipe_file(checkout, [EXPECTED | {"value": 91}])
    assert only().status == "reproduced"  # only the expected value has changed
    (checkout / "site").mkdir(exist_ok=True)
    (checkout / "site/wordings.yaml").write_text(
        f"schema: 1\nother:\n  {now.name}: {{{recipe.sha256}: another rate}}\n")
    found = only()
    assert (found.status, found.own_runs()) == ("measured", [])
    assert found.changes(found.runs[0]) == {"wording": "another rate"}
    (checkout / "site/wordings.yaml").write_text("schema: 1\nother: {a: {b: c}}\n")
    with refused("file-invalid", "wordings.yaml:2: other.a.b"):
        only()


@pytest.mark.parametrize(
    ("source", "year"),
    [("A paper (2019), section 6.3", 2019), ("Goyal et al., arXiv:1706.02677", 2017),
     ("A page (2021) of arXiv:1706.02677", 2021), ("A page of 12,019 images", None)],
)
def test_the_year_of_a_source_is_found(source: str, year: int | None) -> None:
    assert recipe_status.year_of(source) == year


def test_a_published_number_without_a_year_is_refused_with_its_line(checkout: Path) -> None:
    recipe = recipe_file(checkout, [EXPECTED | {"source": "hearsay"}])
    with pytest.raises(UsageError) as caught:
        recipe_status.all_of(evidence.read())
    lines = recipe.path.read_text().splitlines()
    number = next(n for n, text in enumerate(lines, 1) if "source: hearsay" in text)
    assert caught.value.message.startswith(f"{recipe.path}:{number}: expected.0.source: ")
    assert "hearsay" in caught.value.message


def test_a_recipe_that_is_not_valid_stops_with_its_line(checkout: Path) -> None:
    recipe_file(checkout, [EXPECTED]).path.write_text("schema: 1\nsumary: x\n")
    with refused("file-invalid", "cpu-smoke.yaml:2: sumary:"):
        recipe_status.all_of(evidence.read())


def test_evidence_of_no_recipe_is_refused(checkout: Path) -> None:
    recipe = recipe_file(checkout, [EXPECTED])
    add_run(checkout, recipe, 0.95)
    recipe.path.unlink()
    with refused("evidence-invalid", "run.recipe.name", recipe.name, kind=UsageError):
        recipe_status.all_of(evidence.read())


def test_the_recipes_here_have_years_and_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {one.name: one for one in recipe_status.all_of(evidence.read())}
    assert found["resnet-imagenet/v100x1-throughput"].status == "published"
    assert found["resnet-imagenet/cpu-quickstart"].status == "reproduced"
    assert found["resnet-imagenet/gtx1080ti-x4-scaling@8"].ranks == 8
    assert not found["resnet-imagenet/gtx1080ti-x4-scaling@8"].starts_here
    assert found["resnet-imagenet/v100x1-throughput"].hardware == "V100"
    for one in found.values():
        assert all(number.year > 1980 for number in one.numbers)
        assert dataclasses.replace(one, runs=[]).status != "reproduced"


def test_published_numbers_have_known_sources(checkout: Path) -> None:
    from generator import published

    text = """\
schema: 1
sources: {guide: {title: A guide, year: 2019}}
figures:
  one: {value: 1.5, unit: h, about: true, what: a thing, source: guide}
  two: {value: 2, what: another, source: nobody}
hardware: {source: guide, place: table 1, devices: {}}
"""
    (checkout / "site").mkdir()
    file = checkout / published.FILE
    file.write_text(text)
    with refused("file-invalid", "figures.two: ", "'nobody'"):
        published.load()
    file.write_text(text.replace("nobody", "guide"))
    assert published.load().figures["one"].text == "about 1.5 h"


def test_evidence_keeps_its_curves_for_the_pages(checkout: Path) -> None:
    file = add_run(checkout, recipe_file(checkout, [EXPECTED]), 0.95)
    assert only().runs[0].content.curves
    content = json.loads(file.read_text())
    content["curves"][0]["points"][0] = ["a", 0, 1]
    file.write_text(json.dumps(content))
    with refused("evidence-invalid", "curves.0.points.0", kind=UsageError):
        evidence.read()
