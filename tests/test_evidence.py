"""Evidence is read strictly: one error lists all faults with file, line and reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from generator import evidence
from generator.evidence import Ratio, Spread
from refusals import refused
from trimaran import paths
from trimaran.errors import UsageError
from trimaran.evidence.content import LISTED

SOURCE = paths.repository() / "site/results"
RUN = "resnet-imagenet/cpu-quickstart/2026-11-23-epyc-avx2-2core-seed17.json"
BENCHMARK = "benchmarks/2026-11-22-epyc-2core-resnet_cpu.json"
IMAGE = "images/torch-cpu/2026-11-22-epyc-2core.json"
SUITE = "tests/2026-11-23-epyc-2core.json"


@pytest.fixture
def results(checkout: Path) -> Path:
    """Create a checkout with one file of evidence of each kind; return the evidence folder."""
    folder = checkout / evidence.RESULTS
    for name in (RUN, BENCHMARK, IMAGE, SUITE):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes((SOURCE / name).read_bytes())
    (folder / LISTED).write_bytes((SOURCE / LISTED).read_bytes())
    return folder


def change(path: Path, change: Callable[[Any], object]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content, indent=2) + "\n")


def line(path: Path, text: str) -> int:
    """Return the number of the first line of `path` that contains `text`."""
    return next(n for n, found in enumerate(path.read_text().splitlines(), 1) if text in found)


def test_all_evidence_of_the_checkout_is_valid() -> None:
    found = evidence.read()
    assert "resnet-imagenet/cpu-quickstart" in found.runs
    assert {"tests", "mutants"} <= set(found.suites)
    for pieces in found.runs.values():
        days = [piece.content.day for piece in pieces]
        assert days == sorted(days, reverse=True)


def test_each_kind_is_found_by_its_name(results: Path) -> None:
    found = evidence.read()
    piece = found.runs["resnet-imagenet/cpu-quickstart"][0]
    assert piece.path == f"site/results/{RUN}"
    assert piece.content.run.host.text == "2 cores of AMD EPYC (AVX2)"
    assert found.benchmarks["resnet_cpu"][0].content.ratios[0].met is False
    assert found.images["torch-cpu"][0].content.size > 0
    assert found.suites["tests"][0].content.tests[0].outcome == "passed"


def fault(results: Path) -> str:
    with refused("evidence-invalid", results, kind=UsageError) as caught:
        evidence.read()
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "break_it", "where", "reason"),
    [
        (RUN, lambda c: c["run"]["image"].update(digest="sha256:12"), '"digest"', "hexadecimal"),
        (RUN, lambda c: c["run"]["image"].update(publishable=False), '"publishable"', "True"),
        (RUN, lambda c: c["run"].update(status="failed"), '"status"', "completed"),
        (RUN, lambda c: c["run"].update(surprise=1), '"surprise"', "unknown key"),
        (RUN, lambda c: c["run"]["host"].update(hostname="n1"), '"hostname"', "unknown key"),
        (RUN, lambda c: c["verdict"]["rows"][0].update(measured="1e999"), '"measured"', "finite"),
        (RUN, lambda c: c["verdict"]["rows"][0].update(measured=12), '"metric"',
         "val_top1: "),
        (RUN, lambda c: c["verdict"].update(outcome="FAIL"), '"verdict"', "outcome is FAIL"),
        (BENCHMARK, lambda c: c["rates"][1].update(median=99), '"name": "ceiling: fp32', "median"),
        (BENCHMARK, lambda c: c["ratios"][0].update(of="nobody"), "{", "ratios: 'nobody'"),
        (BENCHMARK, lambda c: c["ratios"][0].update(over=["nobody"]), "{", "ratios: 'nobody'"),
        (BENCHMARK, lambda c: c["machine"].update(date="yesterday"), '"date"', "pattern"),
        (IMAGE, lambda c: c.update(size="large"), '"size"', "integer"),
        (SUITE, lambda c: c.update(revision="main"), '"revision"', "pattern"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    results: Path, name: str, break_it: Callable[[Any], object], where: str, reason: str
) -> None:
    path = results / name
    change(path, break_it)
    said = fault(results)
    assert reason in said
    number = int(said.partition(f"{path}:")[2].partition(":")[0])
    assert abs(number - line(path, where)) <= 2, said


def test_all_that_is_wrong_is_named_at_once(results: Path) -> None:
    change(results / RUN, lambda c: c["run"].update(status="failed"))
    (results / BENCHMARK).write_text("{")
    said = fault(results)
    assert f"{results / RUN}:" in said
    assert f"{results / BENCHMARK}:1: " in said


@pytest.mark.parametrize(
    ("name", "to", "named"),
    [
        (RUN, "resnet-imagenet/cpu-quickstart/newest.json", ["DATE-HOST.json"]),
        (RUN, "resnet-imagenet/cpu-quickstart/2026-11-24-a.json", ["2026-11-23", "2026-11-24"]),
        (RUN, "resnet-imagenet/cpu-smoke/2026-11-23-a.json",
         ["of resnet-imagenet/cpu-quickstart", "folder is resnet-imagenet/cpu-smoke"]),
        (IMAGE, "images/torch-gpu/2026-11-22-a.json", ["of torch-cpu", "folder is torch-gpu"]),
        (SUITE, "2026-11-23-a.json", ["this folder"]),
        (SUITE, "a/b/c/2026-11-23-a.json", ["this folder"]),
    ],
)
def test_a_file_that_is_in_the_wrong_place_is_named(
    results: Path, name: str, to: str, named: list[str]
) -> None:
    (results / to).parent.mkdir(parents=True, exist_ok=True)
    (results / name).rename(results / to)
    message = fault(results)
    assert f"{results / to}:1: " in message
    for text in named:
        assert text in message


@pytest.mark.parametrize(("values", "told", "accepted"), [
    ([3.0, 1.0, 8.0], (1.0, 3.0, 8.0), True), ([3.0, 1.0, 8.0, 4.0], (1.0, 3.5, 8.0), True),
    ([3.0, 1.0, 8.0], (1.0, 4.0, 8.0), False),  # 4.0 is the mean
    ([3.0, 1.0, 8.0], (0.5, 3.0, 8.0), False), ([3.0, 1.0, 8.0], (1.0, 3.0, 9.0), False),
    ([2.0], (2.0, 2.0, 2.0), True),
])
def test_least_median_and_most_are_those_of_the_rounds(
    values: list[float], told: tuple[float, float, float], accepted: bool
) -> None:
    given = {"values": values, **dict(zip(("min", "median", "max"), told, strict=True))}
    try:
        Spread.model_validate(given)
    except ValueError:
        assert not accepted
    else:
        assert accepted


@pytest.mark.parametrize(("values", "goal", "met"), [
    ([0.5, 1.0, 2.0], 1.0, True), ([0.5, 0.9, 2.0], 1.0, False), ([1.0, 1.2, 9.0], None, None),
    ([0.1, 1.1, 1.2], 1.0, True),
])
def test_a_goal_is_met_by_the_median(
    values: list[float], goal: float | None, met: bool | None
) -> None:
    ratio = Ratio(
        text="a / b", of="a", over="b", goal=goal, values=values, min=values[0], median=values[1],
        max=values[2],
    )
    assert ratio.met is met
