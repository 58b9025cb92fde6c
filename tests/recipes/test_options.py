"""Tests that arguments are checked against `options.json`, before any file is created."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from refusals import refused
from samples import GOOD
from trimaran.engines.host import Host
from trimaran.errors import UsageError
from trimaran.recipes import cards, library
from trimaran.reporting import Silent
from trimaran.run import inputs, pipeline
from trimaran.run.request import Request

APP = "resnet-imagenet"


@pytest.fixture
def described(checkout: Path) -> Path:
    """Return a checkout that contains the app's `options.json`."""
    folder = checkout / "apps" / APP
    source = Path(__file__).parents[2] / "apps" / APP / "options.json"
    shutil.copy(source, folder)
    return checkout


def write(checkout: Path, args: dict[str, Any]) -> library.RecipeFile:
    path = checkout / f"recipes/{APP}/cpu-smoke.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({**GOOD, "args": args}, sort_keys=False))
    return library.load(f"{APP}/cpu-smoke")


def test_every_app_says_which_options_it_has() -> None:
    """Every app of a committed recipe has `options.json`, so that its arguments are checked."""
    apps = {library.definition(name).app for name in library.names()}
    assert [why for app in apps if (why := cards.unchecked_options(app))] == []


@pytest.mark.parametrize(
    ("args", "fault"),
    [
        ({"modle": "resnet20"}, "model or"),
        ({"no-nesterov": True}, "mean nesterov"),
        ({"engine": "ddp"}, "strategy"),
        ({"zzz": 1}, "known: data, out, model"),
        ({"model": "resnet21"}, "resnet20, resnet32"),
        ({"epochs": 1.5}, "whole number, got 1.5"),
        ({"epochs": 0}, "1, got 0"),
        ({"epochs": True}, "whole number, got true"),
        ({"base-lr": 0.0}, "0, got 0.0"),
        ({"base-lr": "fast"}, "number, got fast"),
        ({"weight-decay": float("inf")}, "finite, got inf"),
        ({"momentum": 1}, "1, got 1"),
        ({"nesterov": "yes, please"}, "got yes, please"),
    ],
)
def test_faults_of_a_recipe_are_named_with_file_line_and_key(
    described: Path, args: dict[str, Any], fault: str
) -> None:
    with pytest.raises(UsageError) as caught:
        write(described, {"seed": 17, **args})
    path = described / f"recipes/{APP}/cpu-smoke.yaml"
    key = next(iter(args))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if f"  {key}:" in text)
    assert f"{path}:{line}: args.{key}: " in caught.value.message
    assert fault in caught.value.message


def test_what_the_app_takes_is_taken(described: Path) -> None:
    write(described, {
        "model": "resnet20", "epochs": 3, "base-lr": 2, "weight-decay": "5e-4", "nesterov": False,
        "milestones": "30,60", "image-size": 32,
    })


def test_a_wrong_change_is_refused_before_data_and_image(
    described: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write(described, {"model": "resnet20"})
    monkeypatch.setattr(inputs, "prepare", lambda *_, **__: pytest.fail("got data"))
    request = Request(recipe, Host(), {"modle": "resnet18", "epochs": -1})
    with pytest.raises(UsageError) as caught:
        pipeline.execute(request, Silent())
    unknown, negative = str(caught.value).splitlines()
    assert unknown.startswith("--set modle: ")
    assert "mean model" in unknown
    assert negative.startswith("--set epochs: ")
    assert negative.endswith("got -1")


def test_an_app_that_says_nothing_is_unchecked_and_that_is_said(checkout: Path) -> None:
    request, reporter = Request(write(checkout, {"modle": 1}), Host(), {}), Silent()
    with refused("name-unknown", "image", kind=UsageError):  # this checkout has none
        pipeline.execute(request, reporter)
    assert "options.json" in reporter.warnings[0]


def test_a_damaged_description_is_named(described: Path) -> None:
    path = described / f"apps/{APP}/options.json"
    content = json.loads(path.read_text())
    content["verbs"]["train"]["options"]["epochs"]["type"] = "word"
    path.write_text(json.dumps(content))
    with refused("file-invalid", f"{path}:1: verbs.train.options.epochs.type"):
        write(described, {"epochs": 3})
