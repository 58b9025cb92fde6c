"""Scores match their NumPy reference for each frame: in batches, over ranks, and in a training."""

from __future__ import annotations

import contextlib
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import plain_future
import plain_networks
import plain_scores as plain
import plain_steps
import pytest
import torch
from thread_ranks import on_ranks
from torch import Tensor

from futuregan import scores, training_evaluation
from futuregan.clips import Loader
from futuregan.growth import GrowthStage
from futuregan.model import Generator, Shape
from futuregan.scores import Scores, ScoreSums
from futuregan.settings import TrainSettings
from futuregan.state import Trained
from trainkit.strategy import Strategy
from trainkit.torch.strategy import TorchStrategy

PAST, FUTURE = 3, 2


def clips(count: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Return random past, true future and predicted frames, each (n, C, T, H, W).

    Past and true frames are clipped to -1..1; predicted values may exceed this range.
    """
    draw = np.random.default_rng(seed)
    coarse = draw.normal(0, 0.6, (count, 3, PAST + FUTURE, size // 4, size // 4))
    real = coarse.repeat(4, 3).repeat(4, 4) + draw.normal(0, 0.1, (count, 3, 5, size, size))
    real = real.clip(-1, 1)
    past, truth = real[:, :, :PAST], real[:, :, PAST:]
    made = truth + draw.normal(0, 0.3, truth.shape) * np.array([1, 2])[:, None, None]
    return tuple(torch.from_numpy(one).float() for one in (past, truth, made))


def numbers(*values: Tensor) -> tuple[plain.Values, ...]:
    return tuple(one.double().numpy() for one in values)


def same(found: Scores, expected: plain.Table) -> None:
    assert {method: set(rows) for method, rows in found.frames.items()} == {
        method: set(rows) for method, rows in expected.items()}
    for method, rows in expected.items():
        for measure, values in rows.items():
            near = 5e-3 if measure == "psnr" else 2e-4
            assert found.frames[method][measure] == pytest.approx(values, abs=near), (
                method, measure)
            assert found.mean(method, measure) == pytest.approx(sum(values) / 2, abs=near)


@pytest.mark.parametrize("size", [8, 16, 32])
@pytest.mark.parametrize("block", [2, 256])
def test_scores_are_those_of_numpy(
    size: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "FRAMES_AT_ONCE", block)
    past, truth, made = clips(3, size)
    assert made.abs().max() > 1  # what leaves the range is cut there
    sums = ScoreSums(size, FUTURE, torch.device("cpu"))
    for cut in (slice(2), slice(2, 3)):
        sums.add(made[cut], past[cut], truth[cut])
    found, expected = sums.mean_over(TorchStrategy()), plain.table(*numbers(made, past, truth))
    assert found.clips == 3
    same(found, expected)
    for measure in ("psnr", *(["ssim"] if size >= 16 else [])):
        assert found.margin(measure) == pytest.approx(plain.margin(expected, measure), abs=5e-3)


@pytest.mark.parametrize("still", [True, False])
def test_the_margin_is_over_whichever_needs_no_training_and_is_better(still: bool) -> None:
    """The margin is the score of the prediction minus the score of the better baseline.

    The repeated last frame is better for still frames, linear extrapolation for even changes.
    """
    first, truth, _ = clips(1, 8)
    change = torch.zeros_like(truth[:, :, :1]) if still else torch.full((1, 3, 1, 8, 8), 0.05)
    noise = 0.02 * torch.randn(1, 3, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    begin = first[:, :, :1] * 0.5
    whole = torch.cat([begin + at * change for at in range(PAST + FUTURE)], 2)
    past, truth = whole[:, :, :PAST] + 0, whole[:, :, PAST:]
    past[:, :, -2:-1] += noise
    made = truth + 0.01
    sums = ScoreSums(8, FUTURE, torch.device("cpu"))
    sums.add(made, past, truth)
    expected = plain.table(*numbers(made, past, truth))
    better = {name: np.mean(rows["psnr"]) for name, rows in expected.items()}
    assert (better["copy_last"] > better["linear"]) == still
    found = sums.mean_over(TorchStrategy())
    assert found.margin("psnr") == pytest.approx(plain.margin(expected, "psnr"), rel=1e-3)


def test_ranks_with_unequal_parts_have_the_scores_of_all_clips(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = list(zip(*(one.split([3, 1, 0]) for one in clips(4, 8)), strict=True))

    def work(strategy: Strategy) -> Scores:
        past, truth, made = parts[strategy.rank]
        sums = ScoreSums(8, FUTURE, torch.device("cpu"))
        sums.add(made, past, truth)
        return sums.mean_over(strategy)

    past, truth, made = clips(4, 8)
    for found in on_ranks(3, work, monkeypatch):
        assert found.clips == 4
        same(found, plain.table(*numbers(made, past, truth)))


class Held:
    """Coloured clips to evaluate on; the method `read` returns an array (T, H, W, C)."""

    def __init__(self, count: int, size: int, seed: int = 4) -> None:
        draw = np.random.default_rng(seed)
        coarse = draw.integers(0, 256, (count, PAST + FUTURE, size // 4, size // 4, 3), np.uint8)
        self.clips = coarse.repeat(4, 2).repeat(4, 3)

    def __len__(self) -> int:
        return len(self.clips)

    def read(self, number: int) -> Any:
        return self.clips[number]


class Looking:
    """A stand-in for the training session in which an evaluation runs."""

    stop_asked = False

    @contextlib.contextmanager
    def counter(self, what: str, total: int, unit: str) -> Any:
        self.done = 0
        yield SimpleNamespace(add=lambda: setattr(self, "done", self.done + 1))
        assert self.done == total


def trained(strategy: TorchStrategy, stage: GrowthStage, average: bool = True) -> Trained:
    """Return a training whose moving average of the generator is `plain_future.generator`.

    If `average` is false, the training has no moving average, and `plain_future.generator` is
    the generator itself.
    """
    def loader(seed: int, training: bool) -> Loader:
        return Loader(Held(5, 32, seed), training=training, seed=1, strategy=strategy, threads=1)

    data: Any = SimpleNamespace(train=loader(5, True), evaluation=loader(4, False))
    settings = TrainSettings(past=PAST, future=FUTURE, size="32")
    other: Any = lambda past, fade=1.0: past[:, :, :FUTURE] * fade  # noqa: E731
    pair = (other, plain_future.generator) if average else (plain_future.generator, None)
    return Trained(settings, data, strategy, pair[0], None, pair[1], {}, {}, stage)  # type: ignore[arg-type]


@pytest.mark.parametrize(("size", "fade", "batch", "ranks", "average"), [
    (32, 1.0, 2, 1, True), (16, 0.25, 2, 1, True), (16, 0.25, 5, 1, False), (8, 0.5, 3, 1, True),
    (16, 0.25, 1, 2, True), (16, 0.25, 2, 3, True),
])
def test_an_evaluation_in_the_training_has_the_scores_of_numpy(
    size: int, fade: float, batch: int, ranks: int, average: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation uses all validation clips, at the current size and fade factor.

    It uses the moving average of the generator if the training has one.
    """
    stage = GrowthStage(size, 1, fade, batch)
    real = torch.from_numpy(Held(5, 32).clips).permute(0, 4, 1, 2, 3)
    past, truth = numbers(*plain_steps.seen(real, size, fade).split([PAST, FUTURE], 2))
    expected = plain.table(plain_future.predicted(past, FUTURE, fade), past, truth)

    def work(strategy: TorchStrategy) -> Any:
        return training_evaluation.evaluate(trained(strategy, stage, average), Looking())  # type: ignore[arg-type]

    found = [work(TorchStrategy())] if ranks == 1 else on_ranks(ranks, work, monkeypatch)
    names = {"prediction": "", "copy_last": "_copy_last", "linear": "_linear"}
    right = {measure + names[method]: np.mean(values) for method, rows in expected.items()
             for measure, values in rows.items()}
    right |= {f"{name}_margin": plain.margin(expected, name)
              for name in ("psnr", "ssim") if name in expected["linear"]}
    for one in found:
        assert one.result == pytest.approx(right, abs=5e-3)
        assert one.values == {f"eval_{name}": value for name, value in one.result.items()}
        shown = f"PSNR {right['psnr']:.2f} dB, last frame repeated {right['psnr_copy_last']:.2f}"
        assert one.text.startswith(shown)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_an_evaluation_has_all_bits_also_where_the_training_has_half(precision: str) -> None:
    network = Generator(Shape(16, PAST, FUTURE, 3, 3))
    stage = GrowthStage(16, 1, 0.25, 5)
    found = trained(TorchStrategy(), stage)
    found = dataclasses.replace(
        found, average=network, settings=dataclasses.replace(found.settings, precision=precision))
    real = torch.from_numpy(Held(5, 32).clips).permute(0, 4, 1, 2, 3)
    past, truth = numbers(*plain_steps.seen(real, 16, 0.25).split([PAST, FUTURE], 2))
    weights = {name: one.detach().double().numpy() for name, one in network.named_parameters()}
    expected = plain.table(plain_networks.generated(past, weights, 0.25), past, truth)
    told = training_evaluation.evaluate(found, Looking())  # type: ignore[arg-type]
    assert told is not None
    errors = expected["prediction"]["mse"]
    assert told.result["mse"] == pytest.approx(np.mean(errors), rel=1e-5)


def test_a_signal_cuts_an_evaluation_short() -> None:
    looking: Any = Looking()
    looking.stop_asked = True
    looking.counter = lambda *_: contextlib.nullcontext()
    found = trained(TorchStrategy(), GrowthStage(8, 1, 1.0, 2))
    assert training_evaluation.evaluate(found, looking) is None
    assert training_evaluation.evaluate(dataclasses.replace(found, average=None), looking) is None
