"""Test what a training logs: seconds, rates, means, counts, precision and evaluations."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import memory_training as memory
import pytest
import torch
from memory_training import HELD_OUT, TRAIN, Memory, Network
from torch import Tensor

from resnet_imagenet import method
from resnet_imagenet.settings import TrainSettings
from trainkit import session
from trainkit.checkpoint import Checkpoints
from trainkit.exits import DivergedError
from trainkit.testing.refusals import refused
from trainkit.torch.precision import prepare
from trainkit.torch.strategy import TorchStrategy


class Clock:
    """A clock that advances only when a test advances it."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Timed(Memory):
    """Batches that take half a second each in training, and a hundred seconds in an evaluation."""

    def __init__(self, clock: Clock, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.clock = clock

    def epoch(self, epoch: int, first: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in super().epoch(epoch, first):
            self.clock.now += 0.5 if self.shuffled else 100.0
            yield batch


class Distant(TorchStrategy):
    """A strategy whose averaging of gradients takes a quarter of a second."""

    clock: Clock

    @contextmanager
    def averaged(self) -> Iterator[None]:
        self.clock.now += 0.25
        self.communicating += 0.25
        yield


def test_seconds_are_those_of_steps_and_not_of_evaluations_and_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, network, strategy, write = Clock(), Network(), Distant(), Checkpoints.start

    def compute(module: Network, images: Any) -> None:
        clock.now += 1.0 if module.training else 1000.0

    def start(*arguments: Any) -> None:
        clock.now += 10_000
        write(*arguments)

    network.register_forward_pre_hook(compute)
    strategy.clock = clock
    monkeypatch.setattr(Checkpoints, "start", start)
    monkeypatch.setattr(session, "time", clock)
    out = memory.train(
        memory.settings(tmp_path / "run", checkpoint_every=3), monkeypatch, network=network,
        strategy=strategy, batches=functools.partial(Timed, clock),
    )
    step = 0.5 + 1.0 + 0.25  # six an epoch, of 4, 4, 4, 4, 4 and 2 images, two a line
    speeds = [8 / (2 * step), 8 / (2 * step), 6 / (2 * step)] * 3
    assert memory.values(out, "throughput") == pytest.approx(speeds)
    assert memory.values(out, "data_wait_fraction") == pytest.approx([0.5 / step] * 9)
    assert memory.values(out, "communication_fraction") == pytest.approx([0.25 / step] * 9)
    result = json.loads((out / "result.json").read_text())
    assert result["training_seconds"] == pytest.approx(18 * step)
    assert (result["steps"], result["epochs"]) == (18, 3.0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_begins_with_its_counts(
    ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = memory.settings(tmp_path / "run", seed=5, epochs=1)
    out = memory.train(asked, monkeypatch, ranks=ranks)
    wanted = {
        "seed": 5, "global_batch_size": 4 * ranks, "train_samples": TRAIN,
        "eval_samples": HELD_OUT,
    }
    assert {key: memory.values(out, key) for key in wanted} == {k: [v] for k, v in wanted.items()}


def places(out: Path, key: str) -> list[tuple[int, int]]:
    """Return the epoch and the step of each value of a metric."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    found = [line["metadata"] for line in lines if line["key"] == key]
    return [(about["epoch_num"], about["step"]) for about in found]


@pytest.mark.parametrize(("more", "evaluated"), [
    ({}, [(1, 6), (2, 12), (3, 18)]),
    ({"eval_every": 2}, [(2, 12), (3, 18)]),  # the last epoch always
    ({"eval_every": 0}, []),
    ({"max_steps": 8}, [(1, 6), (2, 8)]),
    ({"epochs": 9, "steps": 7}, [(1, 6), (2, 7)]),
])
def test_evaluations_are_at_the_ends_of_epochs_and_of_the_training(
    more: dict[str, Any], evaluated: list[tuple[int, int]], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = memory.train(memory.settings(tmp_path / "run", **more), monkeypatch)
    assert places(out, "eval_accuracy") == evaluated
    steps = [step for _, step in places(out, "train_loss")]
    last = evaluated[-1][1] if evaluated else 18
    assert steps == [step for step in range(1, last + 1) if step % 2 == 0 or step % 6 == 0]


def test_the_result_has_the_scores_of_the_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = memory.train(memory.settings(tmp_path / "run"), monkeypatch)
    found = json.loads((out / "result.json").read_text())["evaluation"]
    keys = {"top1": "eval_accuracy", "top5": "eval_accuracy_top5", "loss": "eval_loss"}
    assert found == {name: memory.values(out, key)[-1] for name, key in keys.items()}


def test_max_steps_ends_early_on_the_schedule_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, part = (
        memory.train(memory.settings(tmp_path / name, **more), monkeypatch)
        for name, more in (("whole", {}), ("part", {"max_steps": 10}))
    )
    assert memory.values(part, "learning_rate") == memory.values(whole, "learning_rate")[:5]


class Watched(Network):
    """A network that records its data types in each forward pass."""

    seen: list[Any]

    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        Watched.seen.append((self.training, logits.dtype, self.conv.weight.dtype))
        return logits


@pytest.mark.parametrize(("precision", "kind"), [
    ("fp32", torch.float32), ("tf32", torch.float32), ("bf16", torch.bfloat16),
    ("fp16", torch.float16),
])
def test_the_precision_asked_for_is_the_one_computed_in(
    precision: str, kind: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Watched.seen = []
    exact = memory.train(memory.settings(tmp_path / "exact"), monkeypatch)
    asked = memory.settings(tmp_path / "run", precision=precision)
    out = memory.train(asked, monkeypatch, network=Watched())
    assert set(Watched.seen) == {(way, kind, torch.float32) for way in (True, False)}
    losses = memory.values(exact, "train_loss")
    assert memory.values(out, "train_loss") == pytest.approx(losses, rel=0.03)
    assert bool(memory.part(out, "scaler")) == (precision == "fp16")


@pytest.fixture
def switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore PyTorch's global settings after the test."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    before = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    kept = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.use_deterministic_algorithms(before[0])
    torch.backends.cudnn.benchmark = before[1]
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = kept


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize(("device", "deterministic", "exact"), [
    ("cpu", False, True), ("cuda", False, False), ("cuda", True, True),
])
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_pytorch_is_exact_where_it_costs_little_or_was_asked_for(
    device: str, deterministic: bool, exact: bool, precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    prepare(precision, torch.device(device), seed=77, deterministic=deterministic)
    assert torch.are_deterministic_algorithms_enabled() is exact
    assert torch.backends.cudnn.benchmark is not exact
    fast = precision != "fp32"
    assert torch.backends.cuda.matmul.allow_tf32 is fast
    assert torch.backends.cudnn.allow_tf32 is fast
    assert ("CUBLAS_WORKSPACE_CONFIG" in os.environ) == (device == "cuda" and deterministic)
    assert torch.initial_seed() == 77


def test_the_network_is_built_as_asked_and_from_the_seed() -> None:
    data = SimpleNamespace(classes=("a", "b", "c"), to=SimpleNamespace(channels=1))

    def build(**more: Any) -> Any:
        settings = TrainSettings(**{"model": "resnet20", "bn_momentum": 0.05, **more})
        prepare("fp32", torch.device("cpu"), seed=settings.seed, deterministic=False)
        return method.build(settings, data, TorchStrategy())

    network, other, same = build(), build(seed=18), build()
    assert (network.head.out_features, network.stem[0].in_channels) == (3, 1)
    assert network.stem[1].momentum == 0.05
    assert torch.equal(network.stem[0].weight, same.stem[0].weight)
    assert not torch.equal(network.stem[0].weight, other.stem[0].weight)
    assert network.stages[0][0].conv1.weight.is_contiguous(memory_format=torch.channels_last)
    assert build(stem="imagenet").stem[0].kernel_size == (7, 7)


def test_a_loss_that_is_not_finite_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with refused(DivergedError, "loss-not-finite", "(epoch 1,") as caught:
        memory.train(
            memory.settings(tmp_path / "run", base_lr=1e30, warmup_epochs=0.0), monkeypatch
        )
    assert re.search("(nan|inf) at step [1-4] ", str(caught.value))
