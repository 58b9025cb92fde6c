"""Train with parameter servers: `tf.distribute.ParameterServerStrategy`.

The ranks of a job have three roles. Rank 0 is the coordinator: it reads the data, sends them to the
workers, and writes all files. The next ranks are servers, which keep the weights. The remaining
ranks are workers: a worker reads the weights from the servers and computes what the coordinator
requests. A job survives the loss of a worker, but not the loss of a server or of the coordinator.

Source: Dean et al., "Large Scale Distributed Deep Networks", NeurIPS 2012. TensorFlow's interface:
https://www.tensorflow.org/tutorials/distribute/parameter_server_training.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

import tensorflow as tf

from trainkit.exits import AppError, ExitCode, PeerError, exit_code
from trainkit.ranks import Ranks
from trainkit.signals import StopFlag
from trainkit.strategy import Strategy
from trainkit.tensorflow.cluster import Task
from trainkit.tensorflow.distributed import LOST, THREADS, leave_at_once
from trainkit.tensorflow.strategy import TensorFlowStrategy

MEMORY = b"memory"
"""The message by which the coordinator asks another rank for its peak memory in bytes."""

EVERY = 0.5
"""Seconds between checks of the other ranks while the coordinator waits for a result."""

ENDING = 5.0
"""Seconds to wait, after an error of TensorFlow, for the end of a rank that caused the error."""

STOP = b"stop"
"""The message that a server or worker sends to the coordinator after a signal to stop."""


def roles(size: int, servers: int) -> list[str]:
    """Return the role of each of `size` ranks; TensorFlow calls the coordinator "chief"."""
    return ["chief", *["ps"] * servers, *["worker"] * (size - servers - 1)]


class Remote:
    """The result of a function that runs on a worker; it may still be in progress.

    Args:
        value: the result of `ClusterCoordinator.schedule`.
        check: function that raises PeerError if a server or all workers ended. Its argument is the
            time, in seconds, for which it waits for the end of another rank.
    """

    def __init__(self, value: Any, check: Callable[[float], None]) -> None:
        self._check, self._found = check, None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._fetch, args=[value], daemon=True)
        self._thread.start()

    def _fetch(self, value: Any) -> None:
        try:
            self._found = value.fetch()
        except Exception as error:  # raised by `result`
            self._error = error

    def result(self) -> Any:
        """Wait until the function in the thread has ended, and return its results as NumPy arrays.

        Raises:
            PeerError: a server or all workers ended.
        """
        while self._thread.is_alive():
            self._thread.join(EVERY)
            if self._thread.is_alive():
                self._check(0)
        if self._error is not None:
            self._check(ENDING)
            raise self._error
        return self._found


class Coordinator(TensorFlowStrategy):
    """The strategy of rank 0. Create the network and its optimizer in `distribution.scope()`.

    Args:
        ranks: numbers of this process in the job.
        task: the role of this process, with the connections to all other ranks.
        synchronous: whether the workers share each batch; otherwise each worker gets whole batches.

    Attributes:
        distribution: the strategy of TensorFlow.
        servers: number of servers.
        workers: number of workers that the job started with.
    """

    name = "parameter-server"

    def __init__(self, ranks: Ranks, task: Task, *, synchronous: bool) -> None:
        super().__init__(ranks)
        self.servers, self.workers = len(task.cluster["ps"]), len(task.cluster["worker"])
        self._synchronous, self._asked = synchronous, False
        every = [(role, n) for role in ("ps", "worker") for n in range(len(task.cluster[role]))]
        self._others: dict[Connection, tuple[str, int]] = dict(
            zip(task.connections, every, strict=True)
        )
        self.distribution = tf.distribute.ParameterServerStrategy(
            tf.distribute.cluster_resolver.TFConfigClusterResolver()
        )
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(self.distribution)

    @property
    def backend(self) -> str:
        """The library that connects the ranks: TensorFlow's gRPC."""
        return "grpc"

    @property
    def trainers(self) -> int:
        """The number of ranks that run the training loop: 1, because the others serve rank 0."""
        return 1

    @property
    def unmetered(self) -> str | None:
        """The reason why rank 0 cannot read all energy meters, or None if it can."""
        if self.ranks.local_size < self.size:
            return "rank 0 cannot read the meters of the other nodes"
        if any(":worker/" in gpu.name for gpu in tf.config.list_logical_devices("GPU")):
            return "rank 0 cannot read the meters of the workers' GPUs"
        return None

    @property
    def replicas(self) -> int:
        """The number of workers that share a batch."""
        return self.workers if self._synchronous else 1

    @property
    def pending(self) -> int:  # type: ignore[override]
        """The maximum number of steps that are not complete when the next step starts.

        The value is 0 if the workers share each batch; otherwise it is the number of workers.
        """
        return 0 if self._synchronous else self.workers

    def facts(self) -> dict[str, Any]:
        """Return TensorFlow's facts for `environment.json`, with the server and worker counts."""
        return super().facts() | {"servers": self.servers, "workers": self.workers}

    def schedule(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Remote:
        """Let an idle worker call a `tf.function`; return the result, which may be pending.

        If the worker ends before the result is complete, another worker calls the function again.

        Raises:
            PeerError: a server or all workers ended.
        """
        self._check(0)
        try:
            value = self._coordinator.schedule(function, args=tuple(arguments))
        except LOST:
            self._check(ENDING)
            raise
        return Remote(value, self._check)

    def map(
        self, function: Callable[..., Any], batches: Iterable[Sequence[Any]]
    ) -> Iterator[Any]:
        """Yield the results of a `tf.function` for each batch, in the order of the batches."""
        pending: deque[Remote] = deque()
        for batch in batches:
            pending.append(self.schedule(function, batch))
            if len(pending) > self.workers:
                yield pending.popleft().result()
        for remote in pending:
            yield remote.result()

    def peak_memory(self) -> int:
        """Return the largest peak memory of all ranks, in bytes."""
        found = [super().peak_memory()]
        for connection in self._others:
            with suppress(OSError, EOFError, ValueError):
                connection.send_bytes(MEMORY)
                if connection.poll(ENDING):
                    found.append(int(connection.recv_bytes()))
        return max(found)

    def lost(self, error: Exception) -> bool:
        """Return whether `error` means that another rank ended or cannot be reached."""
        return isinstance(error, LOST)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert errors as `Strategy.explained` does, and send the exit code to all other ranks.

        Raises:
            PeerError: a server or all workers ended.
        """
        code = 0
        try:
            with super().explained():
                yield
        except BaseException as error:
            code = exit_code(error)
            raise
        finally:
            ended = len(self._others) < self.size - 1 or wait(list(self._others), 0)
            for connection in self._others:
                with suppress(OSError):
                    connection.send_bytes(str(code).encode())
            if ended:
                leave_at_once(code)

    def any(self, flag: bool) -> bool:
        """Return whether any rank has received a signal to stop; `flag` states this for rank 0."""
        return flag or self._asked

    def _check(self, seconds: float) -> None:
        """Wait up to `seconds` for messages from other ranks; print a warning if a worker ended.

        Raises:
            PeerError: a server or all workers ended.
        """
        for connection in wait(list(self._others), timeout=seconds):
            assert isinstance(connection, Connection)  # noqa: S101 - we gave no other objects
            with suppress(OSError, EOFError):
                self._asked |= connection.recv_bytes() == STOP
                continue
            role, number = self._others.pop(connection)
            if role == "ps":
                raise PeerError(
                    f"parameter server {number} (rank {number + 1}) ended or cannot be reached, "
                    "and its weights are lost: continue from the last checkpoint with --resume auto"
                )
            left = sum(role == "worker" for role, _ in self._others.values())
            if not left:
                raise PeerError("all workers ended; their own messages have the cause")
            print(
                f"warning: worker {number} (rank {number + 1 + self.servers}) ended; the training "
                f"continues with {left} of {self.workers} workers, which repeat its last step",
                flush=True,
            )


def serve(ranks: Ranks, task: Task, device: str) -> None:
    """Run this process as a server or a worker until rank 0 ends the training.

    Args:
        ranks: numbers of this process in the job.
        task: the role of this process, with the connection to rank 0.
        device: device of this process, "CPU:0" or "GPU:0".

    Raises:
        AppError: the training ended early; the error has the exit code of rank 0.
    """
    (connection,) = task.connections
    server = tf.distribute.Server(
        tf.train.ClusterSpec(dict(task.cluster)), job_name=task.role, task_index=task.index,
        protocol="grpc", config=_config(device),
    )
    with StopFlag() as stop:  # rank 0 writes a checkpoint, and ends the job
        message, told = MEMORY, False
        try:
            while message == MEMORY:
                while not connection.poll(EVERY):
                    if stop and not told:
                        connection.send_bytes(STOP)
                        told = True
                if (message := connection.recv_bytes()) == MEMORY:
                    connection.send_bytes(str(Strategy().peak_memory()).encode())
        except (EOFError, OSError) as error:
            lost = PeerError(
                "rank 0, which coordinates the training, ended or cannot be reached; its own "
                "message has the cause. Continue with --resume auto"
            )
            lost.rank = ranks.rank
            raise lost from error
    del server
    if code := int(message):
        ended = AppError(code="rank-lost")
        known = code in list(ExitCode)  # 1 is a defect of rank 0
        ended.exit_code = ExitCode(code) if known else ExitCode.PEER_LOST
        ended.shared, ended.rank = True, ranks.rank
        raise ended


def _config(device: str) -> tf.compat.v1.ConfigProto:
    """Return the configuration of a TensorFlow server: the threads and the GPU of this process."""
    threading = tf.config.threading
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threading.get_intra_op_parallelism_threads(),
        inter_op_parallelism_threads=max(THREADS, threading.get_inter_op_parallelism_threads()),
    )
    if device.startswith("GPU"):
        (gpu,) = tf.config.get_visible_devices("GPU")
        config.gpu_options.visible_device_list = gpu.name.rsplit(":", 1)[1]
        config.gpu_options.allow_growth = True
    else:
        config.device_count["GPU"] = 0
    return config
