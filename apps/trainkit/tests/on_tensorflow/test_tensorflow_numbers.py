"""Tests of the results of TensorFlow: seeds, order, averages, sums, and seconds of waiting."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import config
from tensorflow_ranks import ThreadHorovod, on_ranks

from trainkit import strategy as neutral
from trainkit.exits import ArgumentError
from trainkit.meters import Gpu
from trainkit.ranks import Ranks
from trainkit.tensorflow import determinism, horovod
from trainkit.tensorflow import profile as profiles
from trainkit.tensorflow import start as module
from trainkit.tensorflow.horovod import Horovod
from trainkit.tensorflow.parts import Variables, digest
from trainkit.tensorflow.profile import SKIPPED, Profile
from trainkit.tensorflow.strategy import Sum, TensorFlowStrategy
from trainkit.testing.refusals import refused


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Yield a dict with the numbers of threads that the code sets for TensorFlow (intra, inter).

    At the end, restore TensorFlow's determinism and the states of the random generators.
    """
    asked = {"intra": 0}
    exact = config.is_op_determinism_enabled()
    kept = random.getstate(), np.random.get_state()
    monkeypatch.setattr(tf.config, "threading", SimpleNamespace(
        get_intra_op_parallelism_threads=lambda: asked["intra"],
        set_intra_op_parallelism_threads=lambda count: asked.update(intra=count),
        set_inter_op_parallelism_threads=lambda count: asked.update(inter=count),
    ))
    config.disable_op_determinism()
    yield asked
    (config.enable_op_determinism if exact else config.disable_op_determinism)()
    random.setstate(kept[0])
    np.random.set_state(kept[1])


@pytest.mark.parametrize("exact", [True, False])
def test_operations_add_up_in_one_order_where_that_is_asked_for(
    exact: bool, threads: dict[str, int]
) -> None:
    determinism.prepare(5, exact=exact)
    assert config.is_op_determinism_enabled() is exact
    assert threads == {"intra": 0}  # nobody has asked for any


def test_operations_add_up_in_one_order_unless_told(threads: dict[str, int]) -> None:
    determinism.prepare(5, threads=3)
    assert config.is_op_determinism_enabled()
    assert threads == {"intra": 3, "inter": 1}
    determinism.prepare(5, threads=4, inter=2)
    assert threads == {"intra": 4, "inter": 2}


def test_all_that_is_drawn_follows_the_seed(threads: dict[str, int]) -> None:
    def drawn(seed: int) -> list[Any]:
        determinism.prepare(seed)
        layer = tf.keras.layers.Dense(2)
        layer.build((None, 3))
        return [
            random.getrandbits(32), np.random.random(), tf.random.uniform([2]).numpy().tolist(),
            np.asarray(layer.kernel).tolist(),
        ]

    first, other, again = drawn(5), drawn(6), drawn(5)
    assert first == again
    assert all(one != two for one, two in zip(first, other, strict=True))
    determinism.prepare(2**32 + 5)  # NumPy takes 32 bits of a seed
    assert np.random.random() == first[1]


PAUSE = 0.03  # real seconds, in which TensorFlow runs all that need not wait


class Clock:
    now = 50.0

    def perf_counter(self) -> float:
        return self.now


def test_waiting_is_from_the_last_gradient_on_and_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(horovod, "time", clock)

    class Slow(ThreadHorovod):
        """A substitute for Horovod whose `allreduce` advances the test clock by two seconds."""

        def allreduce(self, tensor: Any, *, op: str, name: str = "unnamed") -> Any:
            def wait(given: np.ndarray) -> np.ndarray:
                clock.now += 2.0
                return given

            found = tf.numpy_function(wait, [tensor], tensor.dtype)
            found.set_shape(tensor.shape)
            return found

    hvd = Slow(1)
    hvd.enter(0)
    ranks = Horovod(Ranks(None, 0, 1, 0, 1), "CPU:0", hvd)
    ranks.communicating = 0.0  # without the proof at the start

    def computed(given: np.ndarray) -> np.ndarray:
        time.sleep(PAUSE)
        clock.now += 30.0  # of the backward pass: no wait
        return given

    @tf.function
    def step(inputs: tf.Tensor) -> list[tf.Tensor]:  # of a constant it would be computed before
        gradient = tf.numpy_function(computed, [inputs], tf.float32, stateful=False)
        gradient.set_shape([2])
        return ranks.average([gradient])

    for total in (2.0, 4.0):
        clock.now += 1000.0
        assert step(tf.ones(2))[0].numpy().tolist() == [1.0, 1.0]
        assert ranks.communicating == total


def test_averages_and_sums_are_of_all_ranks_in_their_types() -> None:
    large = 2.0**24 + 1  # in single precision it is 2**24

    def work(ranks: Horovod) -> list[Any]:
        rank = ranks.rank
        given = [
            tf.constant([3.0 * rank, 1.0]), tf.constant([1.0 + 4 * rank], tf.bfloat16),
            tf.constant([large * (1 + rank)], tf.float64),
        ]
        found = ranks.average(given)
        return [
            [tensor.dtype.name for tensor in found],
            [tensor.numpy().astype(float).tolist() for tensor in found],
            ranks.sum([large, rank]), ranks.total(tf.constant([1.0 + rank])).numpy().tolist(),
            ranks.any(rank == 2), ranks.any(False),
        ]

    assert on_ranks(3, work) == [[
        ["float32", "bfloat16", "float64"], [[3.0, 1.0], [5.0], [2 * large]], [3 * large, 3.0],
        [6.0], True, False,
    ]] * 3


def test_networks_under_way_at_once_are_not_mixed() -> None:
    class Named(ThreadHorovod):
        """A substitute for Horovod that asserts that no two gradients have the same name.

        Horovod refuses a second operation with the same name while the first is in progress.
        """

        def __init__(self, size: int) -> None:
            super().__init__(size)
            self.names: list[tuple[int, str]] = []

        def allreduce(self, tensor: Any, *, op: str, name: str = "unnamed") -> Any:
            if op == self.Average:
                assert (self.rank(), name) not in self.names
                self.names.append((self.rank(), name))
            return super().allreduce(tensor, op=op, name=name)

    def work(ranks: Horovod) -> list[list[float]]:
        rank = float(ranks.rank)

        @tf.function
        def both() -> list[tf.Tensor]:
            one = ranks.average([tf.constant([rank]), tf.constant([10 + rank])], "one")
            other = ranks.average([tf.constant([100 + rank]), tf.constant([1000 + rank])], "other")
            return [*one, *other]

        return [tensor.numpy().tolist() for tensor in both()]

    assert on_ranks(2, work, Named(2)) == [[[0.5], [10.5], [100.5], [1000.5]]] * 2


def test_what_a_step_computed_is_the_list_of_its_numbers() -> None:
    assert Sum(tf.constant([1.5, 2.0], tf.float64)).result() == [1.5, 2.0]


def test_a_digest_is_over_all_variables_in_their_order() -> None:
    a, b, c = (tf.Variable([value]) for value in (1.0, 2.0, 3.0))
    found = {digest(list(some)) for some in ((a, b), (b, a), (c, b), (a, c), (a,), (b,))}
    assert len(found) == 6


def test_values_go_back_to_the_variables_that_they_are_of() -> None:
    variables = [tf.Variable([value, -value]) for value in (1.0, 2.0, 3.0)]
    part = Variables(variables)
    kept = part.state_dict()
    for variable in variables:
        variable.assign([9.0, 9.0])
    part.load_state_dict(dict(reversed(kept.items())))  # they are told apart by number
    assert [variable.numpy().tolist() for variable in variables] == [
        [1.0, -1.0], [2.0, -2.0], [3.0, -3.0]
    ]


@pytest.mark.parametrize(("gpus", "wanted", "local_rank", "found"), [
    (4, "auto", 3, "3"), (4, "gpu", 2, "2"), (1, "auto", 3, "0"), (4, "cpu", 3, None),
    (0, "auto", 2, None),
])
def test_each_rank_of_a_node_sees_a_gpu_of_its_own(
    gpus: int, wanted: str, local_rank: int, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    grows: list[Any] = []
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [str(number) for number in range(gpus)]
    )
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda which, kind: seen.append(which))
    monkeypatch.setattr(
        tf.config.experimental, "set_memory_growth", lambda which, on: grows.append((which, on))
    )
    assert module.choose(wanted, local_rank) == ("CPU:0" if found is None else "GPU:0")
    assert seen == [[] if found is None else found]
    assert grows == ([] if found is None else [(found, True)])


def test_a_rank_begins_on_the_device_of_its_place_on_the_node(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks, asked, bound = Ranks("Slurm", 5, 8, 1, 4), [], []
    monkeypatch.setattr(module, "detect", lambda: ranks)
    monkeypatch.setattr(module, "choose", lambda *given: asked.append(given) or "CPU:0")
    monkeypatch.setattr(module.affinity, "bind", bound.append)
    monkeypatch.setattr(module, "Horovod", lambda *given: given)
    assert module.start("horovod", device="cpu") == (ranks, "CPU:0")
    assert (asked, bound) == ([("cpu", 1)], [ranks])


@pytest.mark.parametrize(("gpus", "replicas", "named"), [
    (0, None, "--device cpu"), (0, 2, "--device cpu"), (1, 2, "--replicas 2"),
])
def test_replicas_without_enough_gpus_are_refused(
    gpus: int, replicas: int | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda _: ["GPU"] * gpus)
    with refused(ArgumentError, "gpu-unavailable", named):
        module.start_mirrored(replicas, device="gpu")


def test_the_waits_of_a_process_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(neutral, "time", clock)
    alone = TensorFlowStrategy()
    for _ in range(2):
        with alone.waiting():
            clock.now += 1.5
    assert alone.communicating == 3.0


def test_a_profile_is_of_the_steps_after_the_first_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three steps are profiled; the report has their mean time, and shares of their total time.

    The steps take 2 + 3 + 4 s: 1.5 s for data, and 2.25 s for other ranks. Matrix products take
    4.5 s in total, and sums take 0.9 s.
    """
    calls: list[str] = []
    monkeypatch.setattr(tf.profiler.experimental, "start", lambda *_: calls.append("start"))
    monkeypatch.setattr(tf.profiler.experimental, "stop", lambda: calls.append("stop"))
    monkeypatch.setattr(
        profiles, "operations", lambda folder: Counter({"MatMul": 4.5, "Sum": 0.9})
    )
    watch, said = Profile(3), []
    for step in range(SKIPPED + 6):
        watch.before()
        assert bool(calls) == (step >= SKIPPED)
        watched = step - SKIPPED
        times = (2.0 + watched, 0.5, 0.75) if 0 <= watched < 3 else (99.0, 98.0, 1.0)
        said.append(watch.after(*times))
    (told,) = [one for one in said if one]
    assert said.index(told) == SKIPPED + 2
    assert calls == ["start", "stop"]
    assert told.splitlines() == [
        "3000.0 ms a step, of which waiting for data 16.7%, communication 25.0%",
        "   50.0%  MatMul", "   10.0%  Sum", "   40.0%  all others, and between them",
    ]


def test_kinds_beyond_the_first_rows_are_among_the_others() -> None:
    watch = Profile(1)
    watch._sums.add_time(100.0, 0.0, 0.0)
    kinds = Counter({f"kind {number}": 20.0 - number for number in range(6)})
    rows = watch._report(kinds).splitlines()[1:]
    assert len(rows) == 7  # all six, and the rest of nothing
    assert sum(float(row.split("%")[0]) for row in rows) == pytest.approx(100)
    many = Counter({f"kind {number:02}": 1.0 for number in range(20)})
    rows = watch._report(many).splitlines()[1:]
    assert rows[-1] == "   88.0%  all others, and between them"  # 80 of no kind, and 8 kinds


def test_the_gpu_of_a_rank_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    visible = [SimpleNamespace(name="/physical_device:GPU:3")]
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: visible)
    assert TensorFlowStrategy(device="GPU:0").gpu() == Gpu(3)
    assert TensorFlowStrategy().gpu() is None
