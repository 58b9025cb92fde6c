"""A training step matches a reference: gradients, weights, moving average, sums of losses."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import plain_steps as plain
import pytest
import torch
from plain_steps import OneStep, by_slopes  # noqa: F401 - a fixture
from thread_ranks import on_ranks

from futuregan import method
from futuregan.growth import batch_sizes
from futuregan.settings import TrainSettings
from futuregan.train import WORDS, Training
from trainkit.torch.strategy import TorchStrategy

pytestmark = pytest.mark.usefixtures("by_slopes")

SETTINGS = TrainSettings(
    past=plain.PAST, future=plain.FUTURE, size="8", width=3, transition_epochs=2,
    stabilization_epochs=1, batch_size_per_rank=batch_sizes("4"), stddev_group=2, precision="fp32",
    device="cpu", base_lr=0.02, lr_decay=0.5, reconstruction=2.0, penalty=7.0, drift=0.3,
    ema_decay=0.6,
)
"""One epoch at 4 pixels, two epochs that fade in 8 pixels, and one more; four steps per epoch."""
MOMENTS = {
    (0, 1): (4, 1.0, 0.02), (1, 1): (8, 0.25, 0.01), (2, 2): (8, 0.875, 0.01), (3, 0): (8, 1, 0.01),
}
"""(epoch, steps done in this epoch) -> side in pixels, fade and learning rate of the next step."""


def stepped(
    settings: TrainSettings, at: tuple[int, int], counts: list[int], done: int = 100
) -> tuple[Training, Training]:
    """Make one step; return a copy of the training before the step, and the training after it."""
    found = plain.training(settings)
    began = kept(found)
    go(found, at, counts, done)
    return began, found


def kept(found: Training) -> Training:
    """Return a copy of a training, whose networks do not change when the original makes steps."""
    began: Any = copy.copy(found)
    began.generator, began.discriminator = copy.deepcopy((found.generator, found.discriminator))
    began.trained = dataclasses.replace(
        found.trained, average=copy.deepcopy(found.trained.average))
    return began  # type: ignore[no-any-return]


def go(found: Training, at: tuple[int, int], counts: list[int], done: int = 100) -> None:
    """Let a training perform one step on its rank's share of a batch."""
    place = found.session.progress
    place.epoch, place.step, place.steps_per_epoch, place.steps_done = *at, 4, done
    found.train_step(iter([plain.batch(counts, found.strategy.rank)]))


def check(began: Training, found: Training, right: plain.Moved, near: float = 1e-3) -> None:
    for name in ("generator", "discriminator"):
        expected = getattr(right, name)
        assert plain.apart(getattr(found, name), expected, getattr(began, name)) < near, name
    if found.trained.average is not None:
        assert plain.apart(found.trained.average, right.average, began.trained.average) < near
        assert found.trained.average is not found.generator


@pytest.mark.parametrize("loss", ["wgan-gp", "lsgan", "gan"])
@pytest.mark.parametrize("at", MOMENTS)
def test_a_step_is_one_by_hand(loss: str, at: tuple[int, int]) -> None:
    """A training step with three RGB clips equals the reference step.

    The minibatch standard deviation divides the clips into groups of two clips and one clip.
    """
    settings, (size, fade, rate) = dataclasses.replace(SETTINGS, loss=loss), MOMENTS[at]
    began, found = stepped(settings, at, [3])
    right = plain.step(began, plain.batch([3]), size, fade, rate, judged=True, keep=0.6)
    check(began, found, right)
    ((count, sums, rates),) = found.session.told  # type: ignore[attr-defined]
    assert count == 3
    assert sums == pytest.approx([*right.sums, 0], rel=1e-4, abs=1e-4)
    assert rates == {"learning_rate": rate, "resolution": size, "fade_in": fade}
    assert list(WORDS.losses) == ["critic_loss", "generator_loss", "wasserstein",
                                  "gradient_penalty", "reconstruction_loss"]
    assert (found.trained.stage.size, found.trained.stage.fade) == (size, fade)


@pytest.mark.parametrize(("done", "decay", "keep"), [
    (0, 0.6, 1 / 10), (1, 0.6, 2 / 11), (8, 0.6, 0.5), (20, 0.6, 0.6), (990, 0.999, 991 / 1000),
    (100_000, 0.999, 0.999),
])
def test_the_average_keeps_more_with_the_steps_made(done: int, decay: float, keep: float) -> None:
    began, found = stepped(dataclasses.replace(SETTINGS, ema_decay=decay), (1, 1), [3], done)
    right = plain.step(began, plain.batch([3]), 8, 0.25, 0.01, judged=True, keep=keep)
    check(began, found, right)


def test_without_an_average_the_generator_is_evaluated() -> None:
    began, found = stepped(dataclasses.replace(SETTINGS, ema_decay=0.0), (1, 1), [3])
    right = plain.step(began, plain.batch([3]), 8, 0.25, 0.01, judged=True, keep=0)
    check(began, found, right)
    assert found.trained.best is found.generator
    other = plain.training(SETTINGS).trained
    assert other.best is other.average is not other.generator


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_batch_in_parts_makes_the_step_of_the_whole(part: int) -> None:
    """A step with micro-batches equals the reference step with the whole batch of five clips.

    The comparison includes the interpolation positions and the reported sums.
    """
    settings = dataclasses.replace(
        SETTINGS, batch_size_per_rank=batch_sizes("5"), micro_batch=part, stddev_group=1)
    began, found = stepped(settings, (1, 1), [5])
    assert found.discriminator.minibatch_stddev.split_sizes(5, 5, 8) == {
        1: [1] * 5, 2: [2, 2, 1], 3: [3, 2]}[part]
    right = plain.step(began, plain.batch([5]), 8, 0.25, 0.01, judged=True, keep=0.6)
    check(began, found, right)
    ((_, sums, _),) = found.session.told  # type: ignore[attr-defined]
    assert sums == pytest.approx([*right.sums, 0], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("at", [(0, 1), (1, 1), (2, 2)])
def test_before_its_epoch_the_discriminator_neither_learns_nor_judges(at: tuple[int, int]) -> None:
    settings, (size, fade, rate) = dataclasses.replace(SETTINGS, pretraining_epochs=2), MOMENTS[at]
    began, found = stepped(settings, at, [3])
    judged = at[0] >= 2
    right = plain.step(began, plain.batch([3]), size, fade, rate, judged=judged, keep=0.6)
    check(began, found, right)
    ((_, sums, _),) = found.session.told  # type: ignore[attr-defined]
    assert sums == pytest.approx([*right.sums, 0], rel=1e-4, abs=1e-4)
    same = all(torch.equal(one, other) for one, other in zip(
        began.discriminator.parameters(), found.discriminator.parameters(), strict=True))
    assert same == (not judged)


def test_a_second_step_begins_with_no_slopes_of_the_first() -> None:
    _, found = stepped(SETTINGS, (1, 1), [3])
    middle = kept(found)
    go(found, (1, 2), [2])
    right = plain.step(middle, plain.batch([2]), 8, 3 / 8, 0.01, judged=True, keep=0.6)
    check(middle, found, right)


@pytest.mark.parametrize(("counts", "batch", "group"), [
    ([2, 1], "2", 4),  # groups of all ranks, of which one has fewer clips
    ([1, 1], "1", 2), ([4, 2], "4", 2),  # groups of each rank by itself
    ([1, 0], "1", 2),  # no part of the last batch
])
def test_ranks_make_the_step_of_one_process(
    counts: list[int], batch: str, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = dataclasses.replace(
        SETTINGS, batch_size_per_rank=batch_sizes(batch), stddev_group=group, strategy="horovod")
    began = plain.training(settings)
    whole = plain.batch([sum(counts)])
    right = plain.step(began, whole, 8, 0.25, 0.01, judged=True, keep=0.6)

    def work(strategy: TorchStrategy) -> Training:
        found = plain.training(settings, strategy)
        go(found, (1, 1), counts)
        return found

    for found in on_ranks(len(counts), work, monkeypatch):
        check(began, found, right, near=5e-3)
        ((count, sums, _),) = found.session.told
        assert count == sum(counts)
        assert sums == pytest.approx([*right.sums, 0], rel=1e-3, abs=1e-3)


def test_slopes_of_the_penalty_have_all_their_bits_where_networks_have_half() -> None:
    """The penalty is computed in fp32, between real clips and clips that were generated in bf16."""
    settings = dataclasses.replace(SETTINGS, precision="bf16")
    began, found = stepped(settings, (1, 1), [3])
    one = plain.batch([3])
    real = method.prepare_clips(one.clips, found.trained.stage)  # to the bit, for bf16
    with torch.autocast("cpu", torch.bfloat16):
        future = began.generator(real[:, :, : plain.PAST], 0.25)
    assert future.dtype == torch.bfloat16
    false = torch.cat([real[:, :, : plain.PAST], future.float().detach()], 2)
    _, _, penalty = plain.criticised(
        began.discriminator, real, false, one.interpolation, settings, 0.25)
    ((_, sums, _),) = found.session.told  # type: ignore[attr-defined]
    assert sums[3] == pytest.approx(penalty, rel=1e-5)
    whole = plain.step(began, one, 8, 0.25, 0.01, judged=True, keep=0.6)
    assert sums[0] != pytest.approx(whole.sums[0], rel=1e-6)  # the scores have half of them
    assert sums[0] == pytest.approx(whole.sums[0], rel=0.1)


def test_losses_that_are_scaled_for_half_precision_make_a_step_of_their_own_size() -> None:
    """A step in fp16 is close to the reference step, which has no loss scale.

    The two networks have different loss scales.
    """
    found = plain.training(dataclasses.replace(SETTINGS, precision="fp16"))
    assert all(scaler.is_enabled() for scaler in found.scalers.values())
    found.scalers = {
        "generator": torch.amp.GradScaler("cpu", init_scale=4.0),
        "discriminator": torch.amp.GradScaler("cpu", init_scale=16.0),
    }
    began = kept(found)
    go(found, (1, 1), [3])
    right = plain.step(began, plain.batch([3]), 8, 0.25, 0.01, judged=True, keep=0.6)
    check(began, found, right, near=0.3)  # a scale that is not undone is wrong by four times


def test_a_signal_is_told_with_the_sums() -> None:
    found = plain.training(SETTINGS)
    assert isinstance(found.session, OneStep)
    found.session.stop_asked = True
    found.train_step(iter([plain.batch([3])]))
    assert found.session.told[0][1][-1] == 1


def test_adam_is_adam_written_down() -> None:
    """The reference is Kingma and Ba, arXiv:1412.6980, algorithm 1, with betas 0 and 0.99.

    Small gradients show that epsilon does not reduce the steps.
    """
    draw = np.random.default_rng(3)
    layer = torch.nn.Linear(4, 3)
    adam = REAL_OPTIMIZER(layer, dataclasses.replace(SETTINGS, base_lr=0.02))
    weights = layer.weight.detach().double().numpy().copy()
    square = np.zeros_like(weights)
    for number in range(1, 5):
        slopes = draw.normal(size=weights.shape) * 10.0 ** draw.integers(-4, 3, weights.shape)
        layer.weight.grad = torch.from_numpy(slopes).float()
        layer.bias.grad = torch.zeros(3)
        adam.step()
        square = 0.99 * square + 0.01 * slopes**2
        weights -= 0.02 * slopes / (np.sqrt(square / (1 - 0.99**number)) + 1e-8)
        assert layer.weight.detach().numpy() == pytest.approx(weights, abs=1e-5)


REAL_OPTIMIZER = method.optimizer


def test_first_weights_are_of_the_seed_and_the_networks_know_their_groups() -> None:
    def pair(**more: Any) -> tuple[Any, Any]:
        settings = dataclasses.replace(SETTINGS, **more)
        return method.networks(settings, plain.SHAPE, TorchStrategy())

    def equal(one: Any, other: Any) -> bool:
        return all(torch.equal(a, b) for a, b in zip(
            one.parameters(), other.parameters(), strict=True))

    first, again, other = pair(), pair(), pair(seed=18)
    assert [equal(one, two) for one, two in zip(first, again, strict=True)] == [True, True]
    assert [equal(one, two) for one, two in zip(first, other, strict=True)] == [False, False]
    values = torch.randn(6, 2, 1, 4, 4)
    for group in (2, 3, 6):
        _, critic = pair(stddev_group=group)
        differ = critic.minibatch_stddev(values, 1, 8)[:, 2, 0, 0, 0].unique()
        assert len(differ) == 6 // group
    assert pair(micro_batch=2)[1].minibatch_stddev.split_sizes(6, 6, 8) == [2, 2, 2]
