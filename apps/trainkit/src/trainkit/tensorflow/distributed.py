"""The strategies of `tf.distribute` that keep equal weights on all devices.

`Mirrored` trains on several devices of one process, `MultiWorker` on one device of each rank. Both
average gradients whenever an optimizer of Keras applies them within the scope of `distribution`.
"""

from __future__ import annotations

import atexit
import os
import pickle
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from trainkit.exits import PeerError
from trainkit.ranks import Ranks
from trainkit.tensorflow.strategy import TensorFlowStrategy

T = TypeVar("T")

LOST = (tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError,
        tf.errors.InternalError, tf.errors.DeadlineExceededError, tf.errors.UnknownError)
"""The errors that TensorFlow's collective operations raise if another rank has ended."""


THREADS = 4
"""Minimum number of operations that a rank executes in parallel (inter-op): an operation that waits
for another rank occupies a thread. With one thread, parameter servers wait forever, and collective
operations were observed to wait up to 30 s."""


def leave_at_once(code: int) -> None:
    """Make this process skip the shutdown of TensorFlow, which waits for ranks that have ended.

    The process ends after the app has printed its message and returned.

    Args:
        code: exit code of the process.
    """
    def leave() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)

    atexit.register(leave)


class Distributed(TensorFlowStrategy):
    """Base class of the strategies that use a strategy of `tf.distribute`.

    Attributes:
        distribution: TensorFlow's strategy; network and optimizer are created in its `scope()`.
    """

    distribution: tf.distribute.Strategy
    _means: Any = None

    @property
    def replicas(self) -> int:
        """The number of replicas of the network in the job."""
        count: int = self.distribution.num_replicas_in_sync
        return count

    def equalize(self, variables: Iterable[Any]) -> None:
        """Set each of `variables` to its mean over all replicas; see `TensorFlowStrategy`."""
        own = list(variables)
        if self._means is None:  # a second function would connect the ranks for its sums anew
            self._means = tf.function(lambda: [one.read_value() for one in own])
        for variable, mean in zip(own, self._means(), strict=True):
            variable.assign(mean)


class Mirrored(Distributed):
    """The strategy of one process with several devices, each with a replica of the network.

    Args:
        devices: the devices, such as "GPU:0".
    """

    name = "mirrored"

    def __init__(self, devices: list[str]) -> None:
        super().__init__(Ranks(), devices[0])
        self.distribution = tf.distribute.MirroredStrategy(devices)

    def facts(self) -> dict[str, Any]:
        """Return the facts of TensorFlow for `environment.json`, with the number of replicas."""
        return super().facts() | {"replicas": self.replicas}


class MultiWorker(Distributed):
    """The strategy of ranks with one device each, connected by TensorFlow's collective operations.

    TF_CONFIG must be set before the object is created: see `trainkit.tensorflow.cluster`.
    """

    name = "multiworker"

    def __init__(self, ranks: Ranks, device: str) -> None:
        super().__init__(ranks, device)
        self.distribution = tf.distribute.MultiWorkerMirroredStrategy()
        signature = [tf.TensorSpec((None,), tf.int32)]
        self._gathered = tf.function(self._gather, input_signature=signature)

    @property
    def backend(self) -> str:
        """The library that sums tensors over the ranks: nccl on GPUs, TensorFlow's gRPC on CPUs."""
        return "nccl" if self.device.startswith("GPU") else "grpc"

    def _gather(self, values: tf.Tensor) -> tf.Tensor:
        """Concatenate the integers of all ranks; each rank may have any number of integers."""
        found: tf.Tensor = self.distribution.gather(self.distribution.run(lambda: values), axis=0)
        return found

    def gather(self, value: T) -> list[T]:
        """Return every rank's `value`, in the order of the ranks."""
        # Collective operations have no type of one byte.
        content = pickle.dumps(value)
        padded = np.frombuffer(content + bytes(-len(content) % 4), np.int32)
        sizes = self._gathered(tf.constant([len(padded)])).numpy()
        every = np.split(self._gathered(tf.constant(padded)).numpy(), np.cumsum(sizes)[:-1])
        return [pickle.loads(one.tobytes()) for one in every]  # noqa: S301 - from a rank of the job

    def share(self, value: T) -> T:
        """Return rank 0's `value` on every rank."""
        shared: T = self.gather(value if self.is_main else None)[0]  # type: ignore[assignment]
        return shared

    def sum(self, values: Iterable[float]) -> list[float]:
        """Return the sums of `values` over the ranks, in double precision."""
        return [sum(one) for one in zip(*self.gather([float(one) for one in values]), strict=True)]

    def lost(self, error: Exception) -> bool:
        """Return whether `error` means that another rank ended or cannot be reached."""
        return isinstance(error, LOST)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Add the rank number to errors, and convert errors of lost connections to PeerError.

        If another rank is lost, this process will end without the shutdown of TensorFlow, which
        would wait for that rank.

        Raises:
            PeerError: another rank ended, or the network failed.
        """
        try:
            with super().explained():
                yield
        except PeerError as error:
            leave_at_once(error.exit_code)
            raise
