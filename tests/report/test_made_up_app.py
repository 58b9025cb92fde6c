"""Tests with an artificial app: app card and recipe are sufficient for all functions."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from finished import DATA, SIF, launch
from refusals import refused
from samples import GOOD
from trimaran.cli.terminal import show_verdict
from trimaran.compare.comparison import compare
from trimaran.errors import RunError, UsageError
from trimaran.inventory import catalog
from trimaran.recipes import library
from trimaran.report import report, scaling
from trimaran.run import run_directory

CARD = """\
schema: 1
title: Sharper pictures
framework: tensorflow
module: sharpen
verbs: {learn: learn to sharpen pictures}
data: {kinds: [class], sets: one}
metrics:
  psnr: {key: eval_psnr, unit: dB, better: higher, digits: 1, result: psnr, panel: "sharpness, dB"}
  mse:
    key: eval_mse
    factor: 1000
    better: lower
    digits: 3
    least: 0
    most: 1000
    panel: error
    axis: log
  steps_per_s: {key: speed, unit: 1/s, better: higher, hardware_bound: true, shown: best}
neutral_options: [seed]
"""
PSNR = {"metric": "psnr", "unit": "dB", "at": "end", "value": 30, "lower": -0.05, "source": "a"}
MSE = {"metric": "mse", "at": "best", "value": 2, "upper": 0.1, "source": "b"}


def write(checkout: Path, *expected: dict[str, Any]) -> Path:
    (checkout / "apps/sharpen").mkdir(exist_ok=True)
    (checkout / "apps/sharpen/app.yaml").write_text(CARD)
    path = checkout / "recipes/sharpen/cpu-smoke.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump({
        **GOOD, "app": "sharpen", "verb": "learn", "args": {}, "expected": list(expected),
    }, sort_keys=False))
    return path


def run(checkout: Path, directory: Path, psnr: float = 30.0, nodes: int = 1) -> None:
    """Write the files of a completed run of the app to `directory`."""
    write(checkout, PSNR, MSE)
    recipe = library.on_nodes(library.load("sharpen/cpu-smoke"), nodes)
    record = run_directory.start(directory, recipe, {}, SIF, [DATA], launch(recipe, {}, SIF))
    lines = [{"key": "run_start"}]
    for step, mse in enumerate((0.5, 0.0019, 0.02), start=1):
        where = {"step": step, "epoch_num": step}
        lines += [{"key": key, "value": value, "metadata": where} for key, value in
                  (("eval_psnr", psnr), ("eval_mse", mse), ("speed", 10.0 * step * nodes))]
    lines.append({"key": "run_stop", "metadata": {"status": "success", "step": 3}})
    (directory / "metrics.jsonl").write_text(
        "".join(json.dumps({"time_ms": 1, **line}) + "\n" for line in lines)
    )
    result = {"status": "success", "steps": 3, "evaluation": {"psnr": psnr}}
    (directory / "result.json").write_text(json.dumps(result))
    run_directory.finish(directory, record, "completed", 0)


@pytest.mark.parametrize(("psnr", "outcome"), [(30.0, "PASS"), (28.4, "FAIL")])
def test_it_is_run_judged_and_drawn(
    checkout: Path, own_place: Path, capsys: pytest.CaptureFixture[str], psnr: float, outcome: str
) -> None:
    run(checkout, own_place / "run", psnr)
    record, verdict = report.write(own_place / "run")
    assert verdict.outcome == outcome
    assert [(row.metric, row.measured_text, row.accepted_text, row.required)
            for row in verdict.rows] == [
        ("psnr", f"{psnr:.1f} dB", ">= 28.5 dB", True),
        ("mse", "1.900", "<= 2.200", True),
        ("steps_per_s", "30.00 1/s", "-", False),
    ]
    assert record.command.argv[-3:] == ["learn", "--data=/data", "--out=/out"]
    page = (own_place / "run/report.html").read_text()
    picture = (own_place / "run/curves.svg").read_text()
    for panel in ("sharpness, dB", "error"):
        assert f"<span>{panel}</span>" in page
        assert f">{panel}</text>" in picture
    show_verdict(verdict, record.recipe.name, [])
    assert "1.900" in capsys.readouterr().out


def test_its_result_must_agree_with_its_metrics(checkout: Path, own_place: Path) -> None:
    run(checkout, own_place / "run")
    path = own_place / "run/result.json"
    path.write_text(path.read_text().replace("30.0", "31.0"))
    with refused("run-inconsistent", "psnr is 31.0", "eval_psnr", kind=RunError):
        report.write(own_place / "run")


def test_its_scaling_is_that_of_its_own_rate(checkout: Path, own_place: Path) -> None:
    places = scaling.begin(own_place / "series", "sharpen/cpu-smoke", [1, 2])
    for nodes, place in places.items():
        run(checkout, place, nodes=nodes)
        (place / "environment.json").write_text(json.dumps({"strategy": {"size": nodes}}))
    points, _missing = scaling.write(own_place / "series")
    assert [(one.metric, one.rate, one.speedup) for one in points] == [
        ("steps_per_s", 25.0, 1.0), ("steps_per_s", 50.0, 2.0)
    ]
    text = (own_place / "series/scaling.md").read_text()
    assert "| nodes | ranks | steps_per_s |" in text
    assert "| 2 | 2 | 50.0 1/s | 2.00 |" in text
    found, _ = compare(list(places.values()))
    assert [(one.metric, one.ranks, one.speedup) for one in found.scaling] == [
        ("steps_per_s", 1, 1.0), ("steps_per_s", 2, 2.0)
    ]


def test_without_a_rate_it_has_no_scaling(
    checkout: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "CARD", CARD.replace("hardware_bound: true, ", ""))
    run(checkout, scaling.begin(own_place / "series", "sharpen/cpu-smoke", [1])[1])
    with refused("rate-missing", "app.yaml", "hardware_bound", kind=RunError):
        scaling.write(own_place / "series")


def test_it_is_listed_and_shown(checkout: Path) -> None:
    write(checkout, PSNR)
    row = {"name": "sharpen", "framework": "tensorflow", "title": "Sharper pictures"}
    assert row in catalog.table("apps")
    assert catalog.details("apps", "sharpen")["metrics"]["psnr"]["unit"] == "dB"


@pytest.mark.parametrize(
    ("change", "key", "message"),
    [
        ({"metric": "psrn"}, "metric",
         "'psrn' .*psnr or steps_per_s"),
        ({"unit": "%"}, "unit", "psnr is dB"),
        ({"metric": "mse"}, "unit", "mse is none"),
        ({"metric": "mse", "unit": ""}, "upper", "lower mse"),
        ({"metric": "mse", "unit": "", "value": 990, "upper": 0.5}, "upper",
         "1485"),
        ({"metric": "mse", "unit": "", "value": 1001, "upper": 0.5}, "value", "1001 "),
        ({"lower": None, "upper": 0.5}, "lower", "higher psnr"),
    ],
)
def test_what_it_does_not_report_is_refused_with_the_line(
    checkout: Path, change: dict[str, Any], key: str, message: str
) -> None:
    path = write(checkout, MSE, {**PSNR, **change})
    with pytest.raises(UsageError) as caught:
        library.load("sharpen/cpu-smoke")
    text = path.read_text().splitlines()
    items = [n for n, line in enumerate(text, 1) if line.startswith("- metric")]
    line = next(
        (n for n, of in enumerate(text, 1) if n >= items[1] and of.strip(" -").startswith(key)),
        items[1],
    )
    place = rf"{path}:{line}: expected\.1\.{key}: "
    assert re.match(f"{place}.*{message}", caught.value.message)
