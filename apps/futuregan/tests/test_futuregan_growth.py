"""Tests of the schedule of the growth: the resolution of each epoch, and the batch sizes."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from futuregan.growth import BatchSizes, Growth, batch_sizes


def grown(first: int = 4, last: int = 16, transition: int = 2, stabilization: int = 3,
          epochs: int | None = None, batches: str = "8") -> Growth:
    return Growth(first, last, transition, stabilization, epochs, batch_sizes(batches))


def test_the_published_schedule_is_ten_and_ten_epochs_of_each_resolution() -> None:
    growth = grown(last=128, transition=10, stabilization=10)
    assert growth.epochs == 110
    assert [(p.size, p.epochs, p.fades) for p in growth.phases[:3]] == [
        (4, 10, False), (8, 10, True), (8, 10, False)]
    assert [growth.phase(epoch).size for epoch in (0, 9, 10, 29, 30, 109, 500)] == [
        4, 4, 8, 8, 16, 128, 128]


def test_new_layers_come_in_step_by_step() -> None:
    growth = grown()
    fades = [growth.stage(epoch, step, 4).fade for epoch in (3, 4) for step in range(4)]
    assert fades == [n / 8 for n in range(1, 9)]
    assert growth.stage(2, 3, 4).fade == growth.stage(5, 0, 4).fade == 1
    assert [growth.stage(epoch, 0, 4).grown for epoch in (0, 3, 5, 8)] == [0, 1, 1, 2]
    assert [grown(first=8).stage(epoch, 0, 4).grown for epoch in (0, 3)] == [0, 1]


def test_the_last_resolution_has_the_epochs_that_are_left() -> None:
    assert grown(epochs=40).phases[-1].epochs == 40 - 10
    assert grown(epochs=11).phases[-1].epochs == 1
    with pytest.raises(ValueError, match=r"10 epochs .* 16 pixels"):
        grown(epochs=10)


def test_without_a_transition_a_resolution_is_there_at_once() -> None:
    growth = grown(transition=0)
    assert [phase.size for phase in growth.phases] == [4, 8, 16]
    assert {growth.stage(epoch, 0, 4).fade for epoch in range(9)} == {1.0}


@given(st.lists(st.tuples(st.sampled_from([8, 16, 32, 64]), st.integers(1, 99)), max_size=4),
       st.integers(1, 99))
def test_batches_are_read_as_they_are_written(stages: list[tuple[int, int]], first: int) -> None:
    sizes = BatchSizes(((4, first), *sorted(dict(stages).items())))
    assert batch_sizes(str(sizes)) == sizes
    assert sizes.at(4) == first
    assert all(sizes.at(size) == count for size, count in dict(stages).items())
    assert sizes.at(1024) == sizes.stages[-1][1]
    assert sizes.at_most(None) == sizes
    assert all(sizes.at_most(5).at(size) == min(5, sizes.at(size)) for size in (4, 16, 1024))


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "4:0", "8:4", "4:8,4:9", "4:8,2:9", "4:8,",
                                  "8,16", "4:8;8:2"])
def test_other_batches_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        batch_sizes(text)
