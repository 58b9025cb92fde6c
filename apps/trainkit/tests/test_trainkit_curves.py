"""Tests of reading the curves of a finished, running, resumed, killed or damaged run."""

from pathlib import Path

import pytest

from trainkit import curves, metrics
from trainkit.exits import DataError
from trainkit.metrics import MetricsLog
from trainkit.testing.refusals import refused


def write(folder: Path, *steps: int) -> MetricsLog:
    """Return a metrics log with the starts of a run and of its epochs.

    `steps` are the numbers of steps of the epochs; by default, two epochs of 7 steps.
    """
    log = MetricsLog(folder / "metrics.jsonl")
    log.start(metrics.RUN_START)
    for number, own in enumerate(steps or (7, 7)):
        before = sum(steps[:number]) if steps else 7 * number
        log.start(metrics.EPOCH_START, epoch_num=number + 1, step=before, steps=own)
    return log


def test_a_finished_run(tmp_path: Path) -> None:
    with write(tmp_path) as log:
        for step in (7, 14):
            log.event(metrics.TRAIN_LOSS, 1 / step, epoch_num=step // 7, step=step)
        log.event(metrics.EVAL_ACCURACY, 0.5, epoch_num=2, step=14)
        log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=14)
    run = curves.read(tmp_path)
    assert run.curve(metrics.TRAIN_LOSS) == curves.Curve((1.0, 2.0), (1 / 7, 1 / 14))
    assert run.curve(metrics.EVAL_ACCURACY) == curves.Curve((2.0,), (0.5,))
    assert run.curve(metrics.LEARNING_RATE) == curves.Curve()
    assert (run.status, run.epochs, run.resumed) == (metrics.SUCCESS, 2.0, ())


def test_a_run_has_come_as_far_as_its_last_measurement(tmp_path: Path) -> None:
    with write(tmp_path) as log:
        log.event(metrics.EVAL_ACCURACY, 0.5, step=7)
        for step in (3, 7, 10, 13):
            log.event(metrics.TRAIN_LOSS, 0.5, step=step)
        log.event(metrics.THROUGHPUT, 0.5, step=12)
    assert curves.read(tmp_path).epochs == pytest.approx(13 / 7)


def test_epochs_may_differ_in_their_steps(tmp_path: Path) -> None:
    with write(tmp_path, 2, 8) as log:
        for step in (1, 2, 4, 10):
            log.event(metrics.TRAIN_LOSS, 0.5, step=step)
    assert curves.read(tmp_path).curve(metrics.TRAIN_LOSS).epochs == (0.5, 1.0, 1.25, 2.0)


def test_a_line_that_is_just_being_written_is_left_out(tmp_path: Path) -> None:
    with write(tmp_path) as log:
        log.event(metrics.TRAIN_LOSS, 0.5, step=7)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"key": "train_loss", "val')
    run = curves.read(tmp_path)
    assert run.curve(metrics.TRAIN_LOSS).values == (0.5,)
    assert run.status is None


def test_a_resumed_run_says_where_and_is_going_on(tmp_path: Path) -> None:
    with write(tmp_path) as log:
        log.event(metrics.TRAIN_LOSS, 0.5, step=7)
        log.stop(metrics.RUN_STOP, status=metrics.ABORTED, step=7)
    assert curves.read(tmp_path).status == metrics.ABORTED
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.event(metrics.RESUMED, 7, step=7)
        log.event(metrics.TRAIN_LOSS, 0.25, step=14)
    run = curves.read(tmp_path)
    assert run.resumed == (1.0,)
    assert run.curve(metrics.TRAIN_LOSS).epochs == (1.0, 2.0)
    assert run.status is None


def test_a_run_that_has_just_begun_has_no_curves_yet(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.start(metrics.RUN_START)
    run = curves.read(tmp_path)
    assert (run.curves, run.epochs, run.status) == ({}, 0.0, None)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (None, "metrics-missing", "--out"),
        ("[]\n", "metrics-invalid", "line 1 "),
        ('{"key": "run_stop", "value": 1, "metadata": {}}\n', "metrics-invalid", "('status')"),
        ('{"key": "x", "value": 1, "metadata": {}}\nhalf\n{}\n', "metrics-invalid", "line 2 "),
    ],
)
def test_what_is_no_run_is_named(
    tmp_path: Path, text: str | None, code: str, named: str
) -> None:
    if text is not None:
        (tmp_path / "metrics.jsonl").write_text(text)
    with refused(DataError, code, tmp_path / "metrics.jsonl", named):
        curves.read(tmp_path)
