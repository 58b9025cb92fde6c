"""Tests of the energy of a job: which rank reads which meter, and what a training reports.

`FakeMeter` replaces the counter of a device that draws constant power. A test sets the clock, so
that each energy follows from the watts and the seconds of the steps.
"""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_trainkit_seconds import WINDOWS, Clock, Ranks3, Timed, clock, cost, course  # noqa: F401

from trainkit import checkpoint, energy
from trainkit.energy import Energy, Use, owners
from trainkit.meters import CPU, GPU, About, Found, Gpu, Kind, MeterError, RaplMeter
from trainkit.progress import Progress
from trainkit.ranks import Ranks
from trainkit.strategy import Strategy


class FakeMeter:
    """A substitute for the meter of a device that draws `watts`; it fails from the time `until`."""

    def __init__(self, about: About, watts: float, ticks: Clock, until: float = 1e9) -> None:
        self.about, self.watts, self.clock, self.until = about, watts, ticks, until
        self.since = 0.0

    def start(self) -> None:
        self.since = self._now()

    def gained(self) -> float:
        before, self.since = self.since, self._now()
        return self.watts * (self.since - before)

    def _now(self) -> float:
        if self.clock.now >= self.until:
            raise MeterError(f"{self.about.label}: gone")
        return self.clock.now


def about(name: str, kind: Kind = CPU) -> About:
    return About(f"boot-{name}", name, kind)


class Peers:
    """A group of ranks that are threads; each collective waits for all ranks."""

    def __init__(self, size: int) -> None:
        self.size, self.barrier = size, threading.Barrier(size, timeout=20)
        self.given: list[Any] = [None] * size
        self.results: list[Any] = [None] * size

    def exchange(self, rank: int, value: Any) -> list[Any]:
        self.given[rank] = value
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found

    def run(self, work: Callable[[Strategy], Any]) -> list[Any]:
        """Return the result of `work` on each rank, in the order of the ranks."""

        def one(rank: int) -> None:
            self.results[rank] = work(Peer(self, rank))

        threads = [threading.Thread(target=one, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.results


class Peer(Strategy):
    """The strategy of one rank of `peers`, a group of threads that act as ranks.

    The rank has a GPU if `gpus` is true.
    """

    gpus = False

    def __init__(self, peers: Peers, rank: int) -> None:
        super().__init__(Ranks("torchrun", rank, peers.size, rank, peers.size))
        self.peers = peers

    def gpu(self) -> Gpu | None:
        return Gpu(0) if self.gpus else None

    def gather(self, value: Any) -> list[Any]:
        return self.peers.exchange(self.rank, value)

    def sum(self, values: Iterable[float]) -> list[float]:
        return [sum(each) for each in zip(*self.gather(list(values)), strict=True)]


@pytest.fixture
def clock_of_energy(monkeypatch: pytest.MonkeyPatch) -> Clock:
    now = Clock()
    monkeypatch.setattr(energy, "time", now)
    return now


@st.composite
def jobs(draw: st.DrawFn) -> list[list[str]]:
    """Draw for each rank of a job the names of the meters that the rank can read.

    All ranks of a node can read the meters of its processor packages. Each rank uses one GPU card,
    which other ranks of the node may share.
    """
    nodes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    readable = []
    for node, ranks in enumerate(nodes):
        packages = [f"n{node} package-{at}" for at in range(draw(st.integers(1, 2)))]
        for _ in range(ranks):
            card = draw(st.integers(0, 2))
            readable.append([*packages, f"n{node} card-{card}"])
    return readable


@given(readable=jobs())
@settings(max_examples=60, deadline=None)
def test_each_meter_is_read_by_one_rank_that_can(readable: list[list[str]]) -> None:
    every = [[about(name) for name in names] for names in readable]
    found = owners(every)
    assert set(found) == {one.identity for names in every for one in names}
    for identity, rank in found.items():
        assert identity in [one.identity for one in every[rank]]
        assert all(identity not in [one.identity for one in names] for names in every[:rank])


@given(readable=jobs())
@settings(max_examples=15, deadline=None)
def test_the_sum_over_ranks_counts_each_device_once(readable: list[list[str]]) -> None:
    now, peers = Clock(), Peers(len(readable))
    watts = {name: 10.0 + place for place, name in
             enumerate(sorted({name for names in readable for name in names}))}

    def work(strategy: Strategy) -> dict[str, Use]:
        own = readable[strategy.rank]
        one = Energy(strategy, Found([FakeMeter(about(name), watts[name], now) for name in own]))
        one.begin()
        peers.exchange(strategy.rank, None)
        now.now = 102.0
        return one.collect()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy, "time", now)
        results = peers.run(work)
    for found in results:
        assert found[CPU].joules == pytest.approx({name: 2 * w for name, w in watts.items()})


def test_two_dies_and_shared_gpus_are_counted_once(clock_of_energy: Clock) -> None:
    """Each energy meter is counted once, although several ranks read it.

    There are two nodes, each with four ranks, one processor package and two GPU cards. The four
    ranks of a node share the package, and two ranks share a card with two dies.
    """
    peers = Peers(8)

    def work(strategy: Strategy) -> dict[str, Use]:
        strategy.gpus = True  # type: ignore[attr-defined]
        node, card = strategy.rank // 4, strategy.rank // 2
        found = Found([
            FakeMeter(about(f"n{node} package-0"), 100.0, clock_of_energy),
            FakeMeter(about(f"n{node} card-{card}", GPU), 500.0, clock_of_energy),
        ])
        one = Energy(strategy, found)
        assert one.kind == GPU
        one.begin()
        peers.exchange(strategy.rank, None)
        clock_of_energy.now = 103.0
        return one.collect()

    for found in peers.run(work):
        assert (found[GPU].total, found[CPU].total) == (4 * 500.0 * 3, 2 * 100.0 * 3)
        assert (found[GPU].seconds, found[GPU].watts) == (3.0, 2000.0)


def test_a_meter_that_one_rank_cannot_read_ends_the_sum_of_its_kind(clock_of_energy: Clock) -> None:
    peers = Peers(2)

    def work(strategy: Strategy) -> Energy:
        strategy.gpus = True  # type: ignore[attr-defined]
        card = FakeMeter(about(f"card-{strategy.rank}", GPU), 1.0, clock_of_energy)
        if strategy.rank == 1:
            return Energy(strategy, Found([card], {CPU: "root only"}))
        package = FakeMeter(about("package-0"), 1.0, clock_of_energy)
        return Energy(strategy, Found([card, package]))

    for one in peers.run(work):
        assert one.kinds == [GPU]
        assert one.facts() == {GPU: ["card-0", "card-1"],
                               CPU: "not readable: rank 1: root only"}


def test_a_meter_that_breaks_ends_its_kind_on_all_ranks(clock_of_energy: Clock) -> None:
    peers = Peers(2)

    def work(strategy: Strategy) -> tuple[dict[str, Use], list[Kind], dict[Kind, str]]:
        until = 102.0 if strategy.rank == 1 else 1e9
        name = f"n{strategy.rank} package-0"
        one = Energy(strategy, Found([FakeMeter(about(name), 1.0, clock_of_energy, until)]))
        one.begin()
        peers.exchange(strategy.rank, None)
        clock_of_energy.now = 103.0
        found = one.collect()
        one.begin()
        return found | one.collect(), one.kinds, one.not_readable

    assert peers.run(work) == [({}, [], {CPU: "n1 package-0: gone"})] * 2


def test_a_long_interval_is_read_in_between(clock_of_energy: Clock) -> None:
    one = Energy(Strategy(), Found([FakeMeter(about("package-0"), 2.0, clock_of_energy)]))
    meter = next(iter(one._own.values()))
    for passed in (10.0, 10.0, 1.0, 15.0):
        one.begin()
        clock_of_energy.now += passed
    assert isinstance(meter, FakeMeter)
    one.begin()
    assert meter.since == 121.0  # read at the first call more than 20 s after the start
    assert one.collect()[CPU] == Use({"package-0": 72.0}, 36.0)


def test_steps_of_40_s_do_not_outrun_a_counter_of_65_kilojoules(
    clock_of_energy: Clock, tmp_path: Path
) -> None:
    counter = tmp_path / "energy_uj"
    counter.write_text("0\n")
    meter = RaplMeter(about("package-0"), counter, 65_532_610_987, lambda: clock_of_energy.now)
    one = Energy(Strategy(), Found([meter]))
    for passed in (10.0, 40.0, 40.0, 1.0):
        one.begin()
        clock_of_energy.now += passed
    counter.write_text("7000000\n")
    assert one.collect()[CPU] == Use({"package-0": 7.0}, 91.0)
    assert one.not_readable == {}


def test_nothing_is_exchanged_if_nothing_is_readable() -> None:
    class Silent(Strategy):
        def sum(self, values: Iterable[float]) -> list[float]:
            raise AssertionError

    one = Energy(Silent(), Found([], {CPU: "no RAPL"}))
    one.begin()
    assert one.collect() == {}
    assert one.facts() == {CPU: "not readable: no RAPL"}


class OnGpus(Ranks3):
    """Rank 0 of three ranks, as in `Ranks3`, with a GPU."""

    def gpu(self) -> Gpu | None:
        return Gpu(0)


WATTS = {"n1 package-0": 200.0, "n1 package-0 dram": 50.0}


@pytest.fixture
def metered(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Clock:  # noqa: F811
    """Let trainings find fake meters: those in `WATTS`, and one of 700 W for a GPU.

    Return the clock that determines their energy.
    """
    monkeypatch.setattr(energy, "time", clock)

    def find(gpu: Gpu | None) -> Found:
        found: list[Any] = [FakeMeter(about(name), watts, clock) for name, watts in WATTS.items()]
        if gpu is not None:
            found.append(FakeMeter(about("n1 card", GPU), 700.0, clock))
        return Found(found)

    monkeypatch.setattr(energy, "find", find)
    return clock


def lines(out: Path, key: str) -> list[tuple[Any, dict[str, Any]]]:
    every = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [(line["value"], line["metadata"]) for line in every if line["key"] == key]


SECONDS = sum(cost(step).seconds for step in range(15))
SAMPLES = sum(cost(step).samples for step in range(15))


def check_totals(out: Path, watts: dict[str, float] = WATTS) -> None:
    """Assert that the totals of a run equal the sums of the devices' watts times the seconds."""
    total = sum(watts.values())
    [(joules, its)], [(each, of)], [(mean, by)] = (
        lines(out, key) for key in ("energy_joules", "energy_per_sample", "mean_power_watts")
    )
    assert joules == pytest.approx(total * SECONDS)
    assert its["devices"] == pytest.approx({name: w * SECONDS for name, w in watts.items()})
    assert each == pytest.approx(total * SECONDS / SAMPLES)
    assert of["samples"] == SAMPLES
    assert of["devices"] == pytest.approx(
        {name: w * SECONDS / SAMPLES for name, w in watts.items()}
    )
    assert (mean, by["seconds"]) == (pytest.approx(total), pytest.approx(SECONDS))
    assert by["devices"] == pytest.approx(watts)


def test_a_training_reports_its_energy_without_evaluations_and_checkpoints(
    metered: Clock, tmp_path: Path
) -> None:
    out = Timed(tmp_path / "run", metered, course()).run()
    seconds = [sum(cost(step).seconds for step in window) for window in WINDOWS]
    found = lines(out, "interval_energy_joules")
    assert [value for value, _ in found] == pytest.approx([250.0 * took for took in seconds])
    assert [its["seconds"] for _, its in found] == pytest.approx(seconds)
    assert found[0][1]["devices"] == pytest.approx(
        {name: watts * seconds[0] for name, watts in WATTS.items()}
    )
    assert [its["step"] for _, its in found] == [window[-1] + 1 for window in WINDOWS]
    assert [value for value, _ in lines(out, "power_watts")] == pytest.approx([250.0] * 9)
    check_totals(out)
    assert lines(out, "not_readable") == lines(out, "host_energy_joules") == []
    assert json.loads((out / "environment.json").read_text())["energy"] == {CPU: sorted(WATTS)}


def test_the_energy_of_the_host_is_not_that_of_the_gpus(metered: Clock, tmp_path: Path) -> None:
    out = Timed(tmp_path / "run", metered, course(), ranks=OnGpus()).run()
    check_totals(out, {"n1 card": 700.0})
    [(host, its)] = lines(out, "host_energy_joules")
    assert host == pytest.approx(250.0 * SECONDS)
    assert its["devices"].keys() == WATTS.keys()


@pytest.mark.parametrize("step", [3, 5, 9])
def test_a_resumed_run_adds_up(step: int, metered: Clock, tmp_path: Path) -> None:
    out = Timed(tmp_path / "run", metered, course()).run()
    (out / "result.json").unlink()
    metered.now = 5.0  # of another process
    Timed(out, metered, course(), str(out / "checkpoints" / f"step-{step:08d}.npz")).run()
    check_totals(out)


@pytest.mark.parametrize("last", [1, 7])
def test_steps_after_the_last_line_are_in_the_energy(
    last: int, metered: Clock, tmp_path: Path
) -> None:
    out = Timed(tmp_path / "run", metered, course(last_step=last)).run()
    [(joules, _)] = lines(out, "energy_joules")
    assert joules == pytest.approx(250.0 * sum(cost(step).seconds for step in range(last)))


OF_ENERGY = ["interval_energy_joules", "power_watts", "energy_joules", "energy_per_sample",
             "mean_power_watts"]


def test_a_checkpoint_without_energy_leaves_no_total(metered: Clock, tmp_path: Path) -> None:
    """A run that resumes from a checkpoint of an older version logs no total energy.

    Such a checkpoint does not contain the energy of the steps before it.
    """
    out = Timed(tmp_path / "run", metered, course()).run()
    (out / "result.json").unlink()
    path = out / "checkpoints" / "step-00000005.npz"
    state = checkpoint.load(path)
    del state["progress"]["energy"], state["progress"]["window"]["energy"]
    older = tmp_path / "older"
    checkpoint.Checkpoints(older).save(5, state)
    resumed = Timed(tmp_path / "new", metered, course(), str(older / path.name)).run()
    [(reason, its)] = lines(resumed, "not_readable")
    assert (reason, its["keys"]) == ("measured in 10 of 15 steps only", OF_ENERGY)
    assert lines(resumed, "energy_joules") == []


def test_a_machine_without_meters_says_so_once(
    metered: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(energy, "find", lambda gpu: Found([], {CPU: "no RAPL", GPU: "no NVML"}))
    out = Timed(tmp_path / "run", metered, course(), ranks=OnGpus()).run()
    reason = "rank 0: no NVML"
    told = lines(out, "not_readable")
    assert [(text, its["keys"]) for text, its in told] == [
        (reason, OF_ENERGY), ("rank 0: no RAPL", ["host_energy_joules"]),
    ]
    assert not any(lines(out, key) for key in OF_ENERGY)
    facts = json.loads((out / "environment.json").read_text())["energy"]
    assert facts == {GPU: f"not readable: {reason}", CPU: "not readable: rank 0: no RAPL"}


def test_meters_that_break_leave_no_total_and_end_nothing(
    metered: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def find(gpu: Gpu | None) -> Found:
        return Found([FakeMeter(about("n1 package-0"), 9.0, metered, metered.now + 20_000.0)])

    monkeypatch.setattr(energy, "find", find)
    out = Timed(tmp_path / "run", metered, course()).run()
    assert 0 < len(lines(out, "interval_energy_joules")) < len(WINDOWS)
    assert [text for text, _ in lines(out, "not_readable")] == ["n1 package-0: gone"]
    assert lines(out, "energy_per_sample") == []


def test_the_weights_do_not_depend_on_the_meters(
    metered: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = Timed(tmp_path / "first", metered, course())
    first.run()
    monkeypatch.setattr(energy, "find", lambda gpu: Found([], {CPU: "no RAPL"}))
    second = Timed(tmp_path / "second", metered, course())
    second.run()
    assert first.array.tobytes() == second.array.tobytes()


def test_the_energy_in_a_checkpoint_comes_back() -> None:
    progress = Progress(5, energy={CPU: Use({"n1": 1.5}, 2.0, 3, 4)})
    progress.window.energy = {GPU: Use({"n2": 0.5}, 1.0, 1, 1)}
    state = dataclasses.asdict(progress)
    assert Progress.of(state) == progress
