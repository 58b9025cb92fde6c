"""The schedule of a training matches plain loops, and its defaults are the published settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from futuregan import method
from futuregan.growth import Growth, batch_sizes
from futuregan.settings import TrainSettings


def plan(
    first: int, last: int, transition: int, stabilization: int, epochs: int | None
) -> Iterator[tuple[int, int, int, int]]:
    """Yield four numbers for each epoch, computed in a plain loop.

    They are the side in pixels, the number of growths, the number of epochs of the fade, and the
    index of the epoch in the fade.
    """
    side, grown, told = first, 0, 0
    while side <= last:
        for number in range(transition if grown else 0):
            yield side, grown, transition, number
            told += 1
        more = stabilization
        if side == last and epochs is not None:
            more = epochs - told
        for _ in range(more):
            yield side, grown, 0, 0
            told += 1
        side, grown = 2 * side, grown + 1


BATCHES = {4: 12, 8: 12, 16: 5, 32: 2, 64: 2}


@pytest.mark.parametrize(("first", "last", "transition", "stabilization", "epochs"), [
    (4, 16, 2, 3, None), (4, 64, 1, 1, None), (8, 32, 3, 2, 20), (16, 16, 2, 2, None),
    (4, 32, 0, 2, None), (8, 64, 2, 1, 11), (4, 8, 3, 1, 30),
])
def test_each_step_has_its_side_batch_and_fade(
    first: int, last: int, transition: int, stabilization: int, epochs: int | None
) -> None:
    growth = Growth(first, last, transition, stabilization, epochs, batch_sizes("4:12,16:5,32:2"))
    told = list(plan(first, last, transition, stabilization, epochs))
    assert growth.epochs == len(told)
    for epoch, (side, grown, fading, number) in enumerate(told):
        for step in range(3):
            found = growth.stage(epoch, step, 3)
            assert (found.size, found.grown, found.batch) == (side, grown, BATCHES[side])
            share = (3 * number + step + 1) / (3 * fading) if fading else 1
            assert found.fade == pytest.approx(share)
        phase = growth.phase(epoch)
        assert (phase.size, phase.batch) == (side, BATCHES[side])
    assert growth.phase(len(told) + 7).size == last


@pytest.mark.parametrize(("more", "last_step"), [({}, 15), ({"max_steps": 9}, 9),
                                                 ({"max_steps": 100}, 15)])
def test_a_training_has_the_steps_of_each_epoch_by_its_batch(
    more: dict[str, int], last_step: int
) -> None:
    """With 12 clips, an epoch has 1 batch at 8 pixels, 2 batches at 16, and 3 batches at 32."""
    settings = TrainSettings(
        first_size="8", size="32", transition_epochs=1, stabilization_epochs=2, epochs=7,
        batch_size_per_rank=batch_sizes("4:12,16:6,32:4"), eval_every=3, checkpoint_every=None,
        **more,
    )
    growth = method.growth(settings)
    found = method.course(settings, growth, lambda batch: -(-12 // batch))
    assert list(found.steps_per_epoch) == [1, 1, 2, 2, 2, 3, 3][:7]
    assert (found.planned, found.last_step, found.eval_every) == (14, min(last_step, 14), 3)
    assert found.checkpoint_every == found.last_step


def test_rates_fall_by_a_factor_with_each_of_many_growths() -> None:
    settings = TrainSettings()
    growth, rate = method.growth(settings), 0.001
    for side in (4, 8, 16, 32, 64, 128):
        epoch = next(epoch for epoch in range(growth.epochs) if growth.phase(epoch).size == side)
        assert method.learning_rate(settings, growth.stage(epoch, 0, 9)) == pytest.approx(rate)
        rate *= 0.87


PUBLISHED = {
    "past": 6, "future": 6, "size": "128", "first_size": "4", "base_size": "4", "width": 512,
    "transition_epochs": 10, "stabilization_epochs": 10, "loss": "wgan-gp", "penalty": 10.0,
    "drift": 0.001, "base_lr": 0.001, "lr_decay": 0.87, "ema_decay": 0.999, "stddev_group": 4,
    "residual": False, "skip": 0, "reconstruction": 0.0, "pretraining_epochs": 0, "every": 1,
    "stride": None, "epochs": None, "micro_batch": None, "max_steps": None, "synthetic": False,
    "eval_every": 1, "compression": "none", "strategy": "single", "seed": 17,
}
"""The settings of arXiv:1810.01325, section 4, and arXiv:1710.10196, appendix A.1. Extensions are
switched off."""


def test_without_options_it_is_the_published_method() -> None:
    found = TrainSettings()
    assert {name: getattr(found, name) for name in PUBLISHED} == PUBLISHED
    assert str(found.batch_size_per_rank) == "8"
    assert method.BETAS == (0.0, 0.99)
    others = {field.name for field in dataclasses.fields(found)} - PUBLISHED.keys()
    assert others == {  # none of them is of the method
        "data", "out", "batch_size_per_rank", "precision", "threads", "frame_cache", "backend",
        "watchdog", "device", "resume", "checkpoint_every", "keep", "log_every", "profile",
    }


def test_parts_of_a_batch_are_at_most_so_many_at_each_size() -> None:
    settings = TrainSettings(batch_size_per_rank=batch_sizes("4:12,16:5,32:2"), micro_batch=4)
    assert [settings.micro_batch_sizes.at(size) for size in (4, 8, 16, 32, 64)] == [4, 4, 4, 2, 2]
    whole = dataclasses.replace(settings, micro_batch=None)
    assert [whole.micro_batch_sizes.at(size) for size in (4, 8, 16, 32, 64)] == [12, 12, 5, 2, 2]
