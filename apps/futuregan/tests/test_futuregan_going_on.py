"""Tests of the clips of a training, and of trainings that resume from a checkpoint."""

from __future__ import annotations

import dataclasses
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import plain_networks
import plain_scores
import plain_steps
import pytest
import torch
from numpy.typing import NDArray
from plain_steps import by_slopes  # noqa: F401 - a fixture
from thread_ranks import on_ranks
from written_sequences import coloured

from futuregan import inputs, method
from futuregan.__main__ import main
from futuregan.clips import Loader, Synthetic, open_clips
from futuregan.growth import GrowthStage, batch_sizes
from futuregan.inputs import Inputs
from futuregan.settings import TrainSettings
from futuregan.state import Trained
from trainkit import checkpoint, metrics
from trainkit.testing import reading
from trainkit.torch.strategy import TorchStrategy

TRAIN = [coloured(17, 16, 16, 1), coloured(14, 16, 16, 2)]
HELD = [coloured(13, 16, 16, 3), coloured(11, 16, 16, 4)]
"""The validation sequences of the fixture `colours`, (frames, H, W, C) each.

`TRAIN` contains its training sequences.
"""
SEED = 23
ALONE = TorchStrategy()


def cut(sequences: list[NDArray[Any]], length: int, stride: int, every: int) -> list[NDArray[Any]]:
    """Return the clips of all sequences, each (length, H, W, C), computed in a plain loop."""
    found = []
    for frames in sequences:
        at = 0
        while at + (length - 1) * every < len(frames):
            found.append(frames[[at + every * number for number in range(length)]])
            at += stride
    return found


def opened(data: Path | None, strategy: Any = ALONE, **more: Any) -> Inputs:
    settings = TrainSettings(
        data=data, past=3, future=2, size="16", width=4, seed=SEED, threads=1, base_size="8",
        skip=3, residual=True, **more,
    )
    return inputs.open_inputs(settings, strategy)


def epoch(loader: Loader, number: int, batch: int, first: int = 0) -> tuple[Any, Any]:
    """Return the clips of an epoch, (n, T, H, W, C), and their interpolation positions, (n,)."""
    batches = list(loader.epoch(number, first, batch))
    clips = torch.cat([one.clips for one in batches]).permute(0, 2, 3, 4, 1)
    return clips.numpy(), torch.cat([one.interpolation for one in batches]).numpy()


@pytest.mark.parametrize(("stride", "every"), [(None, 1), (1, 1), (2, 2), (3, 1), (None, 2)])
def test_clips_to_learn_from_may_overlap_and_those_held_out_do_not(
    stride: int | None, every: int, colours: Path
) -> None:
    found = opened(colours, stride=stride, every=every)
    train, held = cut(TRAIN, 5, stride or 5 * every, every), cut(HELD, 5, 5 * every, every)
    assert (found.train.samples, found.evaluation.samples) == (len(train), len(held))
    for number in (0, 3):
        clips, _ = epoch(found.evaluation, number, 2)
        assert np.array_equal(clips, np.stack(held))  # in the order of the data
        order = np.random.default_rng((SEED, number)).permutation(len(train))
        clips, _ = epoch(found.train, number, 2)
        assert np.array_equal(clips, np.stack([train[at] for at in order]))
    assert dataclasses.asdict(found.shape) == {
        "size": 16, "past": 3, "future": 2, "channels": 3, "width": 4, "residual": True,
        "base": 8, "skip": 3,
    }


def test_each_clip_of_each_step_and_epoch_has_a_point_of_its_own(colours: Path) -> None:
    """Each clip gets its own interpolation position in 0..1, which NumPy draws for the test.

    The positions depend on the seed, the epoch and the step.
    """
    found = opened(colours, stride=1)  # 13 + 10 clips
    points = []
    for number in range(3):
        _, between = epoch(found.train, number, 5)
        right = [np.random.default_rng((SEED, number, step)).random((5, 1), np.float32)[:, 0]
                 for step in range(5)]
        assert np.array_equal(between, np.concatenate(right)[:23])
        points.append(between)
    everywhere = np.concatenate(points)
    assert len(np.unique(everywhere)) == len(everywhere)
    assert everywhere.min() < 0.1 < 0.9 < everywhere.max()
    assert everywhere.mean() == pytest.approx(0.5, abs=0.15)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_have_parts_of_one_batch_and_go_on_within_an_epoch(
    ranks: int, colours: Path
) -> None:
    whole, between = epoch(opened(colours, stride=1).train, 1, 6, first=2)
    parts, points = [], []
    for rank in range(ranks):
        strategy: Any = SimpleNamespace(rank=rank, size=ranks)
        batches = list(opened(colours, strategy, stride=1).train.epoch(1, 2, 6 // ranks))
        assert [one.count for one in batches] == [6, 5]
        parts.append([one.clips.permute(0, 2, 3, 4, 1).numpy() for one in batches])
        points.append([one.interpolation.numpy() for one in batches])
    assert np.array_equal(np.concatenate(list(chain(*zip(*parts, strict=True)))), whole)
    assert np.array_equal(np.concatenate(list(chain(*zip(*points, strict=True)))), between)
    alone = [np.random.default_rng((SEED, 1)).permutation(23)[at] for at in range(12, 23)]
    train = cut(TRAIN, 5, 1, 1)
    assert np.array_equal(whole, np.stack([train[at] for at in alone]))


def test_another_seed_has_another_order(colours: Path) -> None:
    one, other = (
        Loader(open_clips(colours, "train", 3, 2, 16, 3, 1), training=True, seed=seed,
               strategy=TorchStrategy(), threads=1)
        for seed in (1, 2)
    )
    first, second = epoch(one, 0, 8), epoch(other, 0, 8)
    assert not np.array_equal(first[0], second[0])
    assert not np.array_equal(first[1], second[1])


def test_synthetic_clips_are_not_one_again_and_again() -> None:
    found = Synthetic(8, 3, 5, 8, 1)
    clips = [found.read(number) for number in range(8)]
    assert len({clip.tobytes() for clip in clips}) == 8
    assert {clip.shape for clip in clips} == {(5, 8, 8, 3)}
    settings = opened(None, synthetic=True)
    assert settings.train.samples == inputs.SYNTHETIC == 657


TRAINING = """
    --past 3 --future 2 --size 16 --first-size 8 --base-size 8 --width 2 --precision fp32
    --device cpu --stride 4 --transition-epochs 2 --stabilization-epochs 1 --epochs 4
    --batch-size-per-rank 4:4,16:2 --stddev-group 2 --log-every 1 --threads 1 --ema-decay 0.7
    --every 2 --lr-decay 0.5 --eval-every 1
"""
"""With 5 clips: 2 steps at 8 pixels, 6 steps that fade in 16 pixels, and 3 more steps."""


def train(colours: Path, out: Path, *more: str) -> Path:
    words = ["train", "--data", str(colours), "--out", str(out), *TRAINING.split(), *more]
    assert main(words) == 0
    return out


@pytest.fixture(scope="module")
def whole(colours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run of eight steps with a checkpoint of each step. Tests must not change it."""
    out = tmp_path_factory.mktemp("going_on") / "whole"
    return train(colours, out, "--max-steps", "8", "--checkpoint-every", "1", "--keep", "20")


def test_it_goes_on_in_the_middle_of_a_fade_to_the_same_bits(
    whole: Path, colours: Path, tmp_path: Path
) -> None:
    begun = reading.checkpoints(whole)[3]  # after step 4, of the 6 that fade in 16 pixels
    out = train(colours, tmp_path / "rest", "--max-steps", "8", "--resume", str(begun))
    assert reading.same(reading.parts(out), reading.parts(whole))
    for key in ("learning_rate", "fade_in", "critic_loss", "eval_psnr"):
        told = dict(reading.values(whole, key))
        assert reading.values(out, key) == [(step, told[step]) for step in told if step > 4]


def test_a_checkpoint_has_all_that_decides_how_it_goes_on(whole: Path) -> None:
    states = [checkpoint.load(file) for file in reading.checkpoints(whole)]
    names = {"generator", "discriminator", "average", "generator_optimizer",
             "discriminator_optimizer", "generator_scaler", "discriminator_scaler"}
    for number, state in enumerate(states, 1):
        parts, about = state["parts"], state["about"]
        assert set(parts) == names
        for name in ("generator", "discriminator"):
            steps = {float(one["step"]) for one in parts[f"{name}_optimizer"]["state"].values()}
            assert max(steps) == number
        fade, size = (1.0, 8) if number <= 2 else ((number - 2) / 6, 16)
        assert about["fade"] == pytest.approx(fade)
        assert (about["size"], about["every"], about["shape"]["size"]) == (size, 2, 16)
    weights = [[states[at]["parts"][name]["middle.0.weight"] for at in (6, 7)]
               for name in ("average", "generator")]
    average, generator = weights
    keep = min(0.7, 8 / 17)  # of step 8, after seven
    expected = keep * average[0] + (1 - keep) * generator[1]
    assert average[1] == pytest.approx(expected, abs=1e-6)
    assert not np.array_equal(average[1], generator[1])


def test_scores_of_a_run_are_those_that_numpy_gives_its_average(whole: Path) -> None:
    """The scores of a run equal those of the moving average, computed in NumPy.

    They differ from the scores of the generator without averaging.
    """
    parts, evaluation = (checkpoint.load(reading.checkpoints(whole)[-1])["parts"],
                         reading.result(whole)["evaluation"])
    clips = np.moveaxis(np.stack(cut(HELD, 5, 10, 2)).astype(float), 4, 1) * 2 / 255 - 1
    past, truth = np.split(clips, [3], 2)

    def scores(name: str) -> dict[str, list[float]]:
        weights = {key: one.astype(float) for key, one in parts[name].items()}
        made = plain_networks.generated(past, weights, 1.0, base=8)
        return plain_scores.table(made, past, truth)["prediction"]

    for measure, near in (("mse", 1e-5), ("psnr", 1e-3), ("ssim", 1e-4)):
        right = np.mean(scores("average")[measure])
        assert evaluation[measure] == pytest.approx(right, abs=near), measure
    assert evaluation["mse"] != pytest.approx(np.mean(scores("generator")["mse"]), abs=1e-4)


def test_what_is_told_of_a_run_is_of_all_ranks_and_of_the_last_step(whole: Path) -> None:
    result = reading.result(whole)
    assert (result["size"], result["fade_in"]) == (16, 1)
    told = {one["key"]: one["value"] for one in reading.lines(whole)}
    assert (told[metrics.SEED], told[metrics.GLOBAL_BATCH_SIZE]) == (17, 4)
    assert (told[metrics.TRAIN_SAMPLES], told[metrics.EVAL_SAMPLES]) == (
        len(cut(TRAIN, 5, 4, 2)), len(cut(HELD, 5, 10, 2)))
    assert len(reading.values(whole, "eval_psnr")) == 3  # of each epoch that has ended

    stage, strategy = GrowthStage(8, 1, 0.3, 6), SimpleNamespace(size=5)
    loader = SimpleNamespace(samples=9)
    data: Any = SimpleNamespace(train=loader, evaluation=loader)
    other = Trained(TrainSettings(), data, strategy, None, None, None, {}, {}, stage)  # type: ignore[arg-type]
    assert other.facts()[metrics.GLOBAL_BATCH_SIZE] == 30
    assert other.own_result() == {"size": 8, "fade_in": 0.3}


@pytest.mark.parametrize("name", ["generator", "discriminator"])
def test_ranks_that_differ_in_either_network_have_other_digests(name: str) -> None:
    pair = {"generator": torch.nn.Linear(2, 2), "discriminator": torch.nn.Linear(2, 2)}
    found = Trained(TrainSettings(), None, None, **pair, average=None, optimizers={}, scalers={},  # type: ignore[arg-type]
                    stage=GrowthStage(8, 1, 1.0, 2))
    before = found.digest()
    with torch.no_grad():
        pair[name].weight[0, 0] += 1
    assert found.digest() != before


@pytest.mark.usefixtures("by_slopes")
@pytest.mark.parametrize(("at", "size", "fade"), [
    ((0, 0), 4, 1.0), ((0, 4), 4, 1.0), ((1, 1), 8, 1 / 8), ((1, 2), 8, 2 / 8), ((2, 4), 8, 1.0),
    ((3, 2), 8, 1.0),
])
def test_a_training_that_goes_on_is_at_the_moment_of_its_last_step(
    at: tuple[int, int], size: int, fade: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation after the resume uses the size and the fade factor of the last step."""
    def stand(self: plain_steps.OneStep, *_: object) -> None:
        self.progress = SimpleNamespace(epoch=at[0], step=at[1], steps_per_epoch=4, steps_done=9)

    monkeypatch.setattr(plain_steps.OneStep, "__init__", stand)
    settings = TrainSettings(
        past=2, future=3, size="8", width=3, transition_epochs=2, stabilization_epochs=1,
        batch_size_per_rank=batch_sizes("2"), stddev_group=2, device="cpu",
    )
    found = plain_steps.training(settings)
    assert (found.trained.stage.size, found.trained.stage.fade) == (size, pytest.approx(fade))


def test_ranks_begin_with_the_weights_of_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = TrainSettings(past=2, future=3, size="8", width=3)

    def work(strategy: TorchStrategy) -> list[torch.Tensor]:
        pair = method.networks(settings, plain_steps.SHAPE, strategy)
        return [one.detach() for network in pair for one in network.parameters()]

    one, other = on_ranks(2, work, monkeypatch)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
