"""Check the command `benchmark` of an app, which measures the speed of several networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trainkit.testing.refusals import assert_reported

OPTIONS = "--size 32 --batch-size 2 --steps 2 --warmup 1 --threads 1 --device cpu --json"


def check_benchmark(
    main: Callable[[list[str]], int], models: tuple[str, str], folder: Path,
    capfd: pytest.CaptureFixture[str], *words: str,
) -> None:
    """Assert that `benchmark` measures a network, and reports another one that it cannot run.

    Args:
        main: function that runs the app.
        models: a network that accepts images of 32 pixels, and one that does not.
        folder: an empty folder.
        capfd: the output of the process.
        words: further options.
    """
    picture, numbers = folder / "zoo.svg", folder / "zoo.json"
    to = ["--to", str(picture), str(numbers)]
    assert main(["benchmark", "--models", *models, *OPTIONS.split(), *words, *to]) == 2
    out, err = capfd.readouterr()
    assert_reported(err, "argument-invalid", models[1])
    found = json.loads(out)
    measured, refused = found["networks"]
    assert refused["code"] == "argument-invalid"
    ceiling = found["ceiling"]["flops_per_second"]
    for step, factor in (("forward", 1), ("training", 3)):
        rate = measured[step]
        expected = rate["images_per_second"] * factor * measured["flops"] / ceiling
        assert rate["share"] == pytest.approx(expected)
        assert 0 < rate["slow"] <= rate["images_per_second"] <= rate["fast"]
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert json.loads(numbers.read_text(encoding="utf-8")) == found
