"""Run directories and files of evidence give the same result; other paths are errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from comparable import Make, publish
from finished import start
from refusals import refused
from trimaran.compare import sources
from trimaran.errors import RunError, TrimaranError, UsageError
from trimaran.recipes.library import RecipeFile


def test_a_run_and_its_evidence_are_the_same(make: Make) -> None:
    run = make("a", (0.5, 0.9), (900.0, 1000.0, 1100.0), size=2, seed=3)
    one, other = sources.load(run), sources.load(publish(run))
    assert one.experiment == other.experiment
    assert one.verdict.model_dump() == other.verdict.model_dump()
    assert [curve.points for curve in one.curves] == [curve.points for curve in other.curves]
    assert [*one.windows["throughput"]] == [*other.windows["throughput"]] == [900, 1000, 1100]
    assert (one.ranks, other.ranks) == (2, 2)
    assert (one.changed, other.changed) == ({"seed": 3}, {"seed": 3})
    assert one.app == "resnet-imagenet"


def test_seeds_are_no_other_experiment_and_arguments_are(make: Make) -> None:
    plain, seed, other = (
        sources.load(make(name, **changed))  # type: ignore[arg-type]
        for name, changed in (("a", {}), ("b", {"seed": 5}), ("c", {"epochs": 7}))
    )
    assert plain.experiment == seed.experiment
    assert other.experiment.unlike(plain.experiment) == [
        "arguments epochs=7 instead of the recipe's"
    ]


def test_a_run_that_says_no_ranks_has_those_of_its_recipe(make: Make) -> None:
    assert sources.load(make("a")).ranks == 1


def test_curves_tell_the_windows_of_all_epochs_only(make: Make) -> None:
    evidence = publish(make("a", speeds=[1.0, 2.0]))
    content = evidence.read_text().replace("median-after-epoch-0", "median-after-epoch-1")
    evidence.write_text(content)
    assert sources.load(evidence).windows == {}


def test_evidence_of_an_older_version_has_no_curves(make: Make) -> None:
    evidence = publish(make("a"))
    content = json.loads(evidence.read_text())
    del content["curves"]
    evidence.write_text(json.dumps(content))
    side = sources.load(evidence)
    assert (side.curves, side.windows, side.curve("val_top1")) == ([], {}, None)


def test_a_value_that_is_no_number_is_none(make: Make) -> None:
    side = sources.load(make("a", speeds=[float("nan")]))
    assert side.row("throughput", "median-after-epoch-0") is None
    assert side.row("val_top1", "end") is not None


def test_an_unfinished_run_is_refused(recipe: RecipeFile, own_place: Path) -> None:
    start(own_place / "run", recipe)
    with refused("run-incomplete", own_place / "run", kind=UsageError):
        sources.load(own_place / "run")


def test_a_damaged_run_is_refused(make: Make) -> None:
    run = make("a")
    (run / "result.json").write_text("{}")
    with refused("run-inconsistent", "result.json", kind=RunError):
        sources.load(run)


@pytest.mark.parametrize(
    ("text", "fault"), [("{", ":1: "), ("{}", "run: "), ("[]", "the file: "), ("\xff", "UTF-8")],
)
def test_a_damaged_file_is_named(own_place: Path, text: str, fault: str) -> None:
    file = own_place / "evidence.json"
    file.write_bytes(text.encode("latin-1"))
    with refused("evidence-invalid", "evidence.json", fault, kind=UsageError):
        sources.load(file)


def test_a_file_of_a_run_names_the_run(make: Make) -> None:
    run = make("a")
    with refused("argument-invalid", run / "verdict.json", kind=UsageError) as caught:
        sources.load(run / "verdict.json")
    assert str(run) in str(caught.value.hint)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_what_is_not_there_or_no_run_is_refused(own_place: Path, name: str) -> None:
    (own_place / "empty").mkdir()
    with pytest.raises(TrimaranError, match=name):
        sources.load(own_place / name)
