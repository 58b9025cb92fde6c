"""Tests of the seconds that count as waiting for other ranks, with a clock that the tests set."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from trainkit import strategy as neutral
from trainkit.ranks import Ranks
from trainkit.torch import profile, strategy
from trainkit.torch.horovod import Horovod
from trainkit.torch.profile import SKIPPED, Profile
from trainkit.torch.strategy import Ddp, TorchStrategy


class Clock:
    now = 50.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (neutral, strategy):
        monkeypatch.setattr(module, "time", clock)
    return clock


def ranks_of_ddp(monkeypatch: pytest.MonkeyPatch, sent: list[Any]) -> Ddp:
    """Return the strategy `Ddp` as rank 0 of two ranks, without a connection.

    It appends each gradient bucket to `sent` instead of sending it.
    """
    found = object.__new__(Ddp)
    TorchStrategy.__init__(found, Ranks("torchrun", 0, 2, 0, 2))
    found._last_bucket = 0.0
    hooks = {
        name: lambda group, bucket, name=name: sent.append((name, bucket))
        for name in ("allreduce_hook", "fp16_compress_hook")
    }
    monkeypatch.setattr(strategy, "default_hooks", SimpleNamespace(**hooks))
    return found


def test_ddp_waits_from_its_last_bucket_on_in_each_step_anew(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the time after the last gradient bucket of a step counts as waiting for other ranks."""
    sent: list[Any] = []
    ranks = ranks_of_ddp(monkeypatch, sent)
    for waits, total in ((3.0, 3.0), (2.0, 5.0), (0.5, 5.5)):
        clock.now += 1000.0
        with ranks.backward(nn.Linear(1, 1), last=True):
            for bucket in ("first", "second"):
                clock.now += 7.0
                ranks._reduce(bucket)
            clock.now += waits
        with ranks.averaged():
            clock.now += 100.0  # the optimizer's step
        assert ranks.communicating == pytest.approx(total)
    assert sent == [("allreduce_hook", "first"), ("allreduce_hook", "second")] * 3


def test_ddp_sends_nothing_before_the_last_part_and_halves_if_told(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    ranks, entered = ranks_of_ddp(monkeypatch, sent), nullcontext()
    network: Any = SimpleNamespace(no_sync=lambda: entered)
    assert ranks.backward(network, last=False) is entered
    assert ranks.backward(network, last=True) is not entered
    ranks._half = True
    ranks._reduce("one")
    assert sent == [("fp16_compress_hook", "one")]


def test_horovod_waits_for_the_gradients_that_are_under_way(clock: Clock) -> None:
    class Slow:
        """A substitute for Horovod; its `synchronize` takes two seconds and doubles a gradient."""

        def synchronize(self, handle: torch.Tensor) -> torch.Tensor:
            clock.now += 2.0
            return 2 * handle

    ranks = object.__new__(Horovod)
    TorchStrategy.__init__(ranks, Ranks("Open MPI", 0, 2, 0, 2))
    ranks._hvd, ranks._under_way = Slow(), []
    ranks._compression = SimpleNamespace(decompress=lambda tensor, kind: tensor)
    for total in (4.0, 8.0):
        gradients = [torch.ones(1), torch.full((1,), 3.0)]
        ranks._under_way += [(gradient, None, gradient) for gradient in gradients]
        clock.now += 1000.0
        with ranks.averaged():
            clock.now += 100.0  # the optimizer's step
            assert [gradient.item() for gradient in gradients] == [2.0, 6.0]
        assert ranks.communicating == total


def test_gradients_of_several_networks_are_waited_for(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(TorchStrategy):
        def average(self, tensors: Any) -> None:
            clock.now += 3.0

    network, ranks = nn.Linear(1, 1), Slow(Ranks("Slurm", 1, 2, 0, 1))
    network(torch.ones(1, 1)).sum().backward()
    for total in (3.0, 6.0):
        with ranks.averaged(network):
            clock.now += 100.0
        assert ranks.communicating == total
    with ranks.averaged():  # of no network there is nothing to average
        pass
    assert ranks.communicating == 6.0


class Watching:
    """A substitute for PyTorch's profiler, which counts its starts and stops."""

    started = stopped = 0

    def start(self) -> None:
        Watching.started += 1

    def stop(self) -> None:
        Watching.stopped += 1

    def key_averages(self) -> Any:
        return SimpleNamespace(table=lambda **_: "the table\n")


def test_a_profile_is_of_the_steps_after_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile.profiler, "profile", Watching)
    monkeypatch.setattr(Watching, "started", 0)
    monkeypatch.setattr(Watching, "stopped", 0)
    watch, said = Profile(3, TorchStrategy()), []
    for step in range(SKIPPED + 6):
        watch.before()
        assert Watching.started == (step >= SKIPPED)
        watched = step - SKIPPED
        # 2, 3 and 4 s, of which 0.25, 0.5 and 0.75 for data, and 0.75 each for other ranks.
        times = (2.0 + watched, 0.25 * (1 + watched), 0.75) if 0 <= watched < 3 else (99.0, 98, 1)
        said.append(watch.after(*times))
    assert [one for one in said if one] == [
        "the table\n3000.0 ms a step: waiting for data 16.7%, compute 58.3%, communication 25.0%;"
        " the bottleneck is compute"
    ]
    assert said.index(next(one for one in said if one)) == SKIPPED + 2
    assert (Watching.started, Watching.stopped) == (1, 1)


@pytest.mark.parametrize(("times", "worst"), [
    ((10.0, 6.0, 1.0), "waiting for data"), ((10.0, 1.0, 6.0), "communication"),
    ((10.0, 3.0, 3.0), "compute"),
])
def test_the_bottleneck_is_what_takes_longest(times: tuple[float, ...], worst: str) -> None:
    watch = Profile(1, TorchStrategy())
    watch._sums.add_time(*times)
    assert watch.summary().endswith(f"the bottleneck is {worst}")
