"""Tests of the benchmark of networks: rates, bounds of the rates, and networks that fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_up_networks import FORWARD, SPEED, TRAIN, Clock, MadeUp, limited_allocation

from trainkit import plots
from trainkit.exits import ArgumentError
from trainkit.testing.refusals import refused
from trainkit.zoo import measure, plot, report, run
from trainkit.zoo.measure import Ceiling, Effort, Failure, Row, Times
from trainkit.zoo.options import BenchmarkSettings

CEILING = Ceiling(4e12, 1024)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the clock that `trainkit.zoo.measure` reads by one that the test sets; return it."""
    found = Clock()
    monkeypatch.setattr(measure, "time", found)
    return found


def test_a_rate_is_the_images_of_the_median_step_and_its_share_of_the_ceiling() -> None:
    found = measure.rate([1.0, 9.0, 2.0, 1.5, 4.0], 6, 250_000_000_000, CEILING)
    assert found.images_per_second == 3  # 6 images in 2 s; the mean would be 3.5 s
    assert (found.slow, found.fast) == (6 / 4, 6 / 1.5)  # quartiles of 1, 1.5, 2, 4, 9
    assert found.share == 3 * 0.25e12 / 4e12


def test_a_single_step_has_no_spread() -> None:
    found = measure.rate([2.0], 6, 1, CEILING)
    assert found.slow == found.images_per_second == found.fast == 3


def test_a_training_step_counts_as_three_forward_steps() -> None:
    times = Times(224, 5, 1_000_000_000_000, [1.0], [1.0])
    found = measure.row("n", times, 2, CEILING)
    assert found.forward.share == 2 * 1e12 / 4e12
    assert found.training.share == 3 * found.forward.share
    assert found.training.images_per_second == found.forward.images_per_second


def test_the_first_steps_are_not_measured(clock: Clock) -> None:
    step = clock.step(50.0, 60.0, 1.0, 2.0, 3.0)
    assert measure.step_seconds(step, Effort(8, steps=3, warmup=2)) == [1, 2, 3]


def test_the_ceiling_is_the_fastest_product(clock: Clock) -> None:
    found = measure.measure_ceiling(MadeUp(clock))
    assert found.order == 1024
    assert found.flops_per_second == pytest.approx(SPEED[1024], rel=1e-6)


def test_a_network_is_measured_in_both_steps(clock: Clock) -> None:
    found = measure.attempt(lambda: MadeUp(clock), "good", Effort(8, 3, 1))
    assert isinstance(found, Times)
    assert (found.size, found.parameters, found.flops) == (224, 5_000_000, 3_000_000_000)
    assert found.forward == pytest.approx([FORWARD] * 3)
    assert found.train == pytest.approx([TRAIN] * 3)


@pytest.mark.parametrize(("name", "reason", "code"), [
    ("picky", "--size 8: picky needs 32 pixels", "argument-invalid"),
    ("broken", "a step failed", "app-failed"),
    ("full", "out of memory", "memory-insufficient"),
    ("large", "out of memory", "memory-insufficient"),
])
def test_a_network_that_fails_has_a_reason(
    name: str, reason: str, code: str, clock: Clock
) -> None:
    found = measure.attempt(lambda: MadeUp(clock), name, Effort(8, 3, 1))
    assert found == Failure(name, reason, code)


@pytest.mark.slow
def test_memory_that_is_not_free_is_not_allocated() -> None:
    """An allocation of 200 MiB is refused with 10 MiB of free memory, and granted with 400 MiB.

    The limit is set in another process, so that it has no effect on other tests.
    """
    assert run.separately(limited_allocation, 10 << 20, 200 << 20) == "refused"
    assert run.separately(limited_allocation, 400 << 20, 200 << 20) == "granted"


@pytest.mark.slow
def test_all_networks_are_measured_although_one_kills_its_process(
    capfd: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    opened = run.Opener("made_up_networks", Clock())
    names = ["good", "killed", "picky", "defective", "better"]
    title, ceiling, rows = run.run(opened, names, Effort(8, 2, 0), told.append)
    assert (title, ceiling.order) == ("made-up", 1024)
    assert [row.name for row in rows] == names
    good, killed, picky, defective, better = rows
    assert isinstance(good, Row)
    assert good.training.images_per_second == pytest.approx(8 / TRAIN)
    assert better == replace(good, name="better")
    assert isinstance(killed, Failure)
    assert "SIGKILL" in killed.reason
    assert killed.code == "memory-insufficient"
    assert isinstance(picky, Failure)
    assert isinstance(defective, Failure)
    assert defective.code == "app-failed"
    out, err = capfd.readouterr()
    assert "KeyError" in err  # the traceback of the defect
    assert out == ""  # a library's lines would spoil JSON
    assert told[2:4] == ["1/5  good", "     forward 16 img/s, training 4 img/s"]


def test_the_higher_of_the_ceilings_before_and_after_counts(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    times = Times(224, 5, 1_000_000_000_000, [1.0], [1.0])
    results = iter([(Ceiling(2e12, 512), "made-up"), times, (CEILING, "made-up")])
    monkeypatch.setattr(run, "separately", lambda *_: next(results))
    _, ceiling, (row,) = run.run(
        lambda: pytest.fail("opened here"), ["good"], Effort(2, 1, 0), print)
    assert ceiling == CEILING
    assert isinstance(row, Row)
    assert row.forward.share == 2 * 1e12 / 4e12


@pytest.mark.slow
def test_a_missing_device_ends_the_benchmark() -> None:
    with refused(ArgumentError, "gpu-unavailable", "no GPU"):
        run.run(run.Opener("made_up_networks", None), ["good"], Effort(8, 2, 0), print)


def rows() -> list[Row | Failure]:
    times = Times(224, 25_557_032, 8_178_368_512, [0.5, 0.5], [2.0, 2.0])
    return [
        measure.row("resnet50", times, 8, Ceiling(1e12, 2048)),
        Failure("vgg16", "out of memory", "memory-insufficient"),
    ]


def test_the_table_has_a_line_for_each_network() -> None:
    lines = list(report.table("made-up", Effort(8, 2, 1), Ceiling(1e12, 2048), rows()))
    assert "1 TFLOP/s" in lines[1]
    assert "2048" in lines[1]
    (row,) = [line.split() for line in lines if line.startswith("resnet50")]
    # 16 img/s x 8.178 GFLOP of 1 TFLOP/s are 13 %; 4 img/s x 3 x 8.178 GFLOP are 10 %
    assert row == [
        "resnet50", "224", "25.56", "M", "8.18", "16.0", "(0.0%)", "13%", "4.00", "(0.0%)", "10%",
    ]
    assert "vgg16: not measured: out of memory" in lines
    assert "above 100 %" not in "".join(lines)


def test_the_table_explains_a_share_above_the_ceiling() -> None:
    low = Ceiling(1e11, 2048)
    found = measure.row("resnet50", Times(224, 1, 8_178_368_512, [0.5], [2.0]), 8, low)
    assert "above 100 %" in list(report.table("made-up", Effort(8, 2, 1), low, [found]))[-1]


def test_the_numbers_are_json() -> None:
    found = report.document("made-up", Effort(8, 2, 1), Ceiling(1e12, 2048), rows())
    first, second = json.loads(json.dumps(found))["networks"]
    assert first["forward"]["images_per_second"] == 16
    assert first["forward"]["share"] == pytest.approx(16 * 8_178_368_512 / 1e12)
    assert second == {"name": "vgg16", "reason": "out of memory", "code": "memory-insufficient"}


def test_the_picture_has_a_bar_for_each_rate_and_share() -> None:
    with plots.drawing():
        from matplotlib.patches import Rectangle

        left, right = plot.draw("made-up", [row for row in rows() if isinstance(row, Row)]).axes
        plot.draw("made-up", [])  # no network could be measured
    rates, shares = (
        [bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)]
        for axes in (left, right)
    )
    assert rates == [16, 4]  # forward, training
    assert shares == pytest.approx([100 * 16 * 8.178368512e-3, 100 * 12 * 8.178368512e-3])
    assert [text.get_text() for text in left.get_yticklabels()] == ["resnet50"]


def test_networks_that_were_not_measured_end_with_an_error() -> None:
    with refused(ArgumentError, "memory-insufficient", "1 of 2", "vgg16"):
        report.refuse_failures(rows())
    report.refuse_failures(rows()[:1])


def test_a_file_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    (tmp_path / "old.json").touch()
    for name, code in (
        ("zoo.jpg", "argument-invalid"), ("old.json", "file-exists"),
        ("gone/zoo.json", "file-unwritable"), ("gone/zoo.svg", "file-unwritable"),
    ):
        with refused(ArgumentError, code, name):
            BenchmarkSettings(to=[tmp_path / "new.json", tmp_path / name]).check()
    BenchmarkSettings(to=[tmp_path / "new.json", tmp_path / "new.svg"]).check()
