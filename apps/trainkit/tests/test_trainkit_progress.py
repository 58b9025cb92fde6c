"""Tests of the progress of a training, whose epochs may have different numbers of steps."""

from __future__ import annotations

import dataclasses

from trainkit.progress import Progress


def test_steps_are_counted_over_epochs_of_any_length() -> None:
    at = Progress(3)
    at.step = 2
    assert (at.steps_done, at.epoch_is_over) == (2, False)
    at.step = 3
    assert (at.steps_done, at.epoch_is_over) == (3, True)
    at.next_epoch(5)
    assert (at.epoch, at.step, at.steps_done) == (1, 0, 3)
    at.step = 4
    assert (at.steps_done, at.epoch_is_over) == (7, False)


def test_it_goes_on_where_it_stood() -> None:
    at = Progress(3)
    at.step = 3
    at.next_epoch(5)
    at.step = 1
    assert Progress.of(dataclasses.asdict(at)) == at
