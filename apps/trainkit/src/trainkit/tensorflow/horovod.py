"""Horovod: average gradients by MPI, Gloo or NCCL as soon as they are ready.

Sergeev and Del Balso, arXiv:1802.05799. Environment variables set Horovod's fusion threshold and
cycle time: HOROVOD_FUSION_THRESHOLD (bytes), HOROVOD_CYCLE_TIME (ms).

trainkit does not use Horovod's `DistributedOptimizer`: with Keras 3, the released version of
Horovod averages nothing, and reports no error.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from trainkit.exits import ArgumentError, RanksDifferError
from trainkit.ranks import Ranks, check_size, horovod_backend, yield_when_idle
from trainkit.tensorflow.parts import Variables, plain
from trainkit.tensorflow.strategy import TensorFlowStrategy

LOST = (tf.errors.UnknownError, tf.errors.AbortedError, tf.errors.FailedPreconditionError)
"""The errors that Horovod's operations raise if another rank has ended."""

T = TypeVar("T")


class Horovod(TensorFlowStrategy):
    """The strategy of a Horovod job, whose ranks are connected by MPI, Gloo or NCCL.

    Raises:
        ArgumentError: Horovod is not installed, or its world size differs from the world size of
            the launcher.
        RanksDifferError: Horovod computes a wrong mean over the ranks in the test at the start.
    """

    name = "horovod"
    _means: Any = None

    def __init__(self, ranks: Ranks, device: str, hvd: Any = None) -> None:
        self._hvd = hvd or _connected(ranks)
        found = Ranks(
            ranks.launcher, self._hvd.rank(), self._hvd.size(), self._hvd.local_rank(),
            self._hvd.local_size(),
        )
        super().__init__(found, device)
        self._prove()

    @property
    def backend(self) -> str:
        """The library that averages tensors over the ranks: gloo, mpi or nccl."""
        return horovod_backend(self._hvd, gpu=self.device.startswith("GPU"))

    def _prove(self) -> None:
        """Test whether Horovod computes the known mean of one number per rank.

        Raises:
            RanksDifferError: the mean is wrong.
        """
        given = tf.constant(float(self.rank + 1))
        (found,) = tf.function(self.average)([given], "proof")
        expected = (self.size + 1) / 2
        if self.any(float(found) != expected):
            raise RanksDifferError(
                f"Horovod does not average: the mean of 1 to {self.size} is {float(found):g}, not "
                f"{expected:g}"
            )

    def broadcast(self, variables: Iterable[Any]) -> None:
        """Assign rank 0's values to `variables` on every rank."""
        own = Variables(variables)
        # Horovod's own broadcast supports only few data types.
        own.load_state_dict(self.share(own.state_dict()))

    def average(self, gradients: Sequence[tf.Tensor], of: str = "network") -> list[tf.Tensor]:
        """Return the averages of `gradients` over the ranks; see `TensorFlowStrategy`."""
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        with tf.control_dependencies(dense):
            begun = tf.numpy_function(time.perf_counter, [], tf.float64)
        found = [
            self._hvd.allreduce(_known(gradient), op=self._hvd.Average, name=f"{of}.{number}")
            for number, gradient in enumerate(dense)
        ]
        # Measured from the end of the backward pass: communication during it costs no time.
        with tf.control_dependencies(found):
            tf.numpy_function(self._count, [begun], [])
        return [tf.cast(mean, own.dtype) for mean, own in zip(found, dense, strict=True)]

    def _count(self, begun: float) -> None:
        self.communicating += time.perf_counter() - float(begun)

    def total(self, values: tf.Tensor) -> tf.Tensor:
        """Return the sums of `values` over the ranks; see `TensorFlowStrategy`."""
        return self._hvd.allreduce(values, op=self._hvd.Sum, name="total")

    def equalize(self, variables: Iterable[Any]) -> None:
        """Set each of `variables` to its mean over all ranks; see `TensorFlowStrategy`."""
        own = [plain(one) for one in variables]
        if not own:
            return
        if self._means is None:  # otherwise each call would build a graph
            self._means = tf.function(lambda: self.average(own, "statistics"))
        for variable, mean in zip(own, self._means(), strict=True):
            variable.assign(mean)

    def sum(self, values: Iterable[float]) -> list[float]:
        """Return the sums of `values` over the ranks."""
        numbers = tf.constant(list(values), tf.float64)
        found: list[float] = self._hvd.allreduce(numbers, op=self._hvd.Sum).numpy().tolist()
        return found

    def share(self, value: T) -> T:
        """Return rank 0's `value` on every rank."""
        # Without a name, ranks whose values differ in type would wait for each other forever.
        shared: T = self._hvd.broadcast_object(value, root_rank=0, name="share")
        return shared

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in the order of the ranks."""
        found: list[T] = self._hvd.allgather_object(value, name="gather")
        return found

    def lost(self, error: Exception) -> bool:
        """Return whether `error` means that another rank ended or cannot be reached."""
        return isinstance(error, LOST) and "Horovod" in str(error)

    def close(self) -> None:
        """Shut Horovod down."""
        self._hvd.shutdown()


def check_keras(command: str, *, two: bool = True) -> None:
    """Raise ArgumentError if `tf.keras` is missing, or if it is not Keras 2 and `two` is true.

    Horovod's `DistributedOptimizer` averages nothing with Keras 3, and reports no error.

    Args:
        command: command that needs Keras, for the message.
        two: whether the command needs Keras 2.

    Raises:
        ArgumentError: the required Keras is missing.
    """
    remedy = "set TF_USE_LEGACY_KERAS=1 and install tf-keras, or use an image, which has both"
    try:
        name = tf.keras.__name__
    except ImportError as error:  # TF_USE_LEGACY_KERAS is set, but tf-keras is missing
        raise ArgumentError(
            f"{command}: no Keras 2 ({error}): {remedy}", code="library-missing"
        ) from error
    if two and not name.startswith("tf_keras"):
        raise ArgumentError(
            f"{command} --strategy horovod needs Keras 2, and tf.keras is Keras 3, under which "
            f"Horovod's optimizer averages nothing: {remedy}",
            code="library-missing",
        )


def _connected(ranks: Ranks) -> Any:
    """Start Horovod, check the number of its ranks, and return the Horovod module."""
    try:
        import horovod.tensorflow as hvd
    except ImportError as error:
        raise ArgumentError(
            f"--strategy horovod: Horovod is not installed ({error}); the images have it",
            code="library-missing",
        ) from error
    yield_when_idle()
    hvd.init()
    check_size(ranks, hvd.size(), "Horovod")
    return hvd


def _known(tensor: Any) -> tf.Tensor:
    """Return `tensor` in a data type that Horovod can sum on CPUs: bfloat16 becomes float32."""
    known = tf.float32 if tensor.dtype == tf.bfloat16 else tensor.dtype
    return tf.cast(tensor, known)
