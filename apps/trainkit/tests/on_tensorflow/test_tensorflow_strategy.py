"""Tests of ranks in TensorFlow: averages, sums, and refusal of a Horovod that does not average."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_ranks import ThreadHorovod, on_ranks

from trainkit.exits import ArgumentError, PeerError, RanksDifferError
from trainkit.tensorflow.horovod import Horovod
from trainkit.tensorflow.start import choose, start
from trainkit.tensorflow.strategy import TensorFlowStrategy
from trainkit.testing.refusals import refused


def gradients_of(rank: int) -> list[tf.Tensor]:
    table = tf.IndexedSlices(tf.constant([[1.0 + rank]]), tf.constant([rank]), tf.constant([2, 1]))
    return [tf.constant([1.0, 2.0]) * (rank + 1), tf.constant([1.5 + rank], tf.bfloat16), table]


def test_gradients_are_averaged_in_a_graph() -> None:
    def work(ranks: Horovod) -> list[np.ndarray]:
        @tf.function
        def averaged() -> list[tf.Tensor]:
            return ranks.average(gradients_of(ranks.rank))

        averaged()
        found = averaged()  # a second run meets the others', too
        assert ranks.communicating > 0
        return [tensor.numpy() for tensor in found]

    for dense, half, sparse in on_ranks(2, work):
        assert dense.tolist() == [1.5, 3.0]
        assert half.dtype.name == "bfloat16"
        assert half.tolist() == [2.0]
        assert sparse.tolist() == [[0.5], [1.0]]


def test_ranks_sum_share_and_gather() -> None:
    def work(ranks: Horovod) -> tuple:
        return (
            ranks.sum([ranks.rank, 1.0]), ranks.any(ranks.rank == 1),
            ranks.share({"of": ranks.rank}), ranks.gather(ranks.rank),
            ranks.total(tf.constant([2.0, ranks.rank])).numpy().tolist(), ranks.is_main,
        )

    common = ([3.0, 3.0], True, {"of": 0}, [0, 1, 2], [6.0, 3.0])
    assert on_ranks(3, work) == [(*common, rank == 0) for rank in range(3)]


def test_all_ranks_start_from_the_variables_of_rank_0() -> None:
    def work(ranks: Horovod) -> list:
        own = 1.0 + ranks.rank
        seed = tf.Variable(tf.constant([ranks.rank], tf.uint32))  # as Keras's dropout has one
        variables = [tf.Variable([own]), tf.Variable([1 + own], dtype=tf.bfloat16), seed]
        ranks.broadcast(variables)
        return [variable.numpy().tolist() for variable in variables]

    assert on_ranks(2, work) == [[[1.0], [2.0], [0]]] * 2


def test_a_horovod_that_does_not_average_is_found_at_the_start() -> None:
    class Silent(ThreadHorovod):
        def allreduce(self, tensor: tf.Tensor, *, op: str, name: str = "unnamed") -> tf.Tensor:
            return tensor if op == self.Average else super().allreduce(tensor, op=op, name=name)

    with refused(RanksDifferError, "ranks-differ", "1 to 2"):
        on_ranks(2, lambda ranks: None, Silent(2))


@pytest.mark.parametrize(("error", "lost"), [
    (tf.errors.UnknownError(None, None, "{{node HorovodAllreduce}} Read error"), True),
    (tf.errors.InvalidArgumentError(None, None, "{{node HorovodAllreduce}} bfloat16"), False),
    (tf.errors.UnknownError(None, None, "out of memory"), False),
])
def test_a_lost_rank_is_told_from_other_errors(error: tf.errors.OpError, lost: bool) -> None:
    def work(ranks: Horovod) -> None:
        with ranks.explained():
            raise error

    with pytest.raises(PeerError if lost else type(error)):
        on_ranks(2, work)


def test_one_rank_is_its_own_average() -> None:
    alone = TensorFlowStrategy()
    assert [t.numpy().tolist() for t in alone.average([tf.constant([3.0])])] == [[3.0]]
    assert alone.total(tf.constant([3.0])).numpy().tolist() == [3.0]
    assert (alone.sum([1.0]), alone.share("a"), alone.gather("a")) == ([1.0], "a", ["a"])


def test_ranks_that_would_train_side_by_side_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(ArgumentError, match="--strategy horovod"):
        start("single")


def test_a_gpu_that_is_not_there_is_refused() -> None:
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is one")
    with refused(ArgumentError, "gpu-unavailable", "local rank 1", "sees 0"):
        choose("gpu", 1)
    assert choose("auto", 0) == "CPU:0"


PROGRAM = """
import sys
import tensorflow as tf
from trainkit.exits import run
from trainkit.tensorflow.start import start

def main():
    ranks = start("horovod", device="cpu")
    with ranks.explained():
        step = tf.function(lambda: ranks.average([tf.constant([1.0 + ranks.rank])]))
        assert step()[0].numpy().tolist() == [1.5]
        assert ranks.gather(ranks.rank) == [0, 1]
    ranks.close()

sys.exit(run("program", main))
"""


@pytest.mark.slow
def test_real_ranks(tmp_path: Path) -> None:
    pytest.importorskip("horovod.tensorflow", reason="in images; tests/integration has it")
    if shutil.which("mpirun") is None:
        pytest.skip("no mpirun")
    (tmp_path / "program.py").write_text(PROGRAM)
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    done = subprocess.run(
        ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable,
         tmp_path / "program.py"],
        capture_output=True, text=True, timeout=120, check=False,
    )
    assert done.returncode == 0, done.stderr
