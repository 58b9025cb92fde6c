"""Start the strategy of a training on the device and the cores of this rank."""

from __future__ import annotations

import tensorflow as tf

from trainkit import affinity
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks, detect
from trainkit.tensorflow import cluster
from trainkit.tensorflow.cluster import Task, user_ranks
from trainkit.tensorflow.distributed import THREADS, Mirrored, MultiWorker
from trainkit.tensorflow.horovod import Horovod
from trainkit.tensorflow.parameter_server import Coordinator, roles, serve
from trainkit.tensorflow.strategy import TensorFlowStrategy


def start(name: str, *, device: str = "auto") -> TensorFlowStrategy:
    """Return the strategy `name`, connected with the other ranks of the job.

    Call this function before the first operation of TensorFlow.

    Args:
        name: one of `trainkit.tensorflow.STRATEGIES`.
        device: "cpu", "gpu", or "auto": the GPU of this local rank if there is one.

    Raises:
        ArgumentError: the launcher does not fit the strategy, or a device or package is missing.
    """
    ranks = detect()
    if name == "single":
        if ranks.size > 1:
            raise ArgumentError(
                f"{ranks.launcher} started {ranks.size} ranks, and --strategy single would train "
                "each on its own: use --strategy horovod",
                code="ranks-unconnected",
            )
        return TensorFlowStrategy(Ranks(), choose(device, 0))
    return Horovod(ranks, _rank_device(ranks, device))


def start_mirrored(replicas: int | None, *, device: str = "auto") -> Mirrored:
    """Return the strategy of one process with several devices of this node.

    Call this function before the first operation of TensorFlow.

    Args:
        replicas: number of devices; None for all GPUs, or for one replica on the CPU.
        device: "cpu", "gpu", or "auto": GPUs if there are any.

    Raises:
        ArgumentError: the launcher started several ranks, or there are too few GPUs.
    """
    ranks = detect()
    if ranks.size > 1:
        raise ArgumentError(
            f"{ranks.launcher} started {ranks.size} ranks, and --strategy mirrored would train "
            "each on its own: start one process per job, or use --strategy multiworker",
            code="ranks-unconnected",
        )
    gpus = [] if device == "cpu" else tf.config.list_physical_devices("GPU")
    if device == "cpu" or (device == "auto" and not gpus):
        tf.config.set_visible_devices([], "GPU")
        (cpu,) = tf.config.list_physical_devices("CPU")
        count = replicas or 1
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * count
        )
        return Mirrored([f"CPU:{number}" for number in range(count)])
    if not gpus:
        raise ArgumentError(
            "--device gpu: TensorFlow finds no GPU on this node; use --device cpu",
            code="gpu-unavailable",
        )
    count = replicas or len(gpus)
    if count > len(gpus):
        raise ArgumentError(
            f"--replicas {count}: TensorFlow finds {len(gpus)} GPUs on this node; use fewer "
            "replicas, or --device cpu",
            code="gpu-unavailable",
        )
    tf.config.set_visible_devices(gpus[:count], "GPU")
    for gpu in gpus[:count]:
        tf.config.experimental.set_memory_growth(gpu, True)
    return Mirrored([f"GPU:{number}" for number in range(count)])


def start_multiworker(*, device: str = "auto") -> MultiWorker:
    """Return the strategy that connects the ranks of this job; each rank has one device.

    Call this function before the first operation of TensorFlow.

    Args:
        device: "cpu", "gpu", or "auto": the GPU of this local rank if there is one.

    Raises:
        ArgumentError: TF_CONFIG is invalid, or a device is missing.
        PeerError: a rank cannot be reached.
    """
    ranks = user_ranks() or detect()
    chosen = _rank_device(ranks, device)
    cluster.join(ranks, ["worker"] * ranks.size)
    if 0 < tf.config.threading.get_inter_op_parallelism_threads() < THREADS:  # 0: all cores
        tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    return MultiWorker(ranks, chosen)


def start_parameter_server(
    servers: int, *, synchronous: bool, device: str = "auto"
) -> Coordinator | None:
    """Return the coordinator's strategy; other ranks serve the coordinator, then return None.

    Call this function before the first operation of TensorFlow.

    Args:
        servers: number of ranks that keep the weights.
        synchronous: whether the workers share each batch.
        device: device of the workers: "cpu", "gpu", or "auto": the GPU of a worker if there is one.

    Raises:
        ArgumentError: there are too few ranks, TF_CONFIG is invalid, or a device is missing.
        AppError: the training ended early; raised only on ranks other than the coordinator.
    """
    ranks = user_ranks() or detect()
    if ranks.size < servers + 2:
        raise ArgumentError(
            f"--strategy parameter-server needs a coordinator, {servers} servers (--servers) and "
            f"at least one worker: start {servers + 2} ranks or more, for example with mpirun -n "
            f"{servers + 2}; the launcher started {ranks.size}",
            code="ranks-uneven",
        )
    task = cluster.join(ranks, roles(ranks.size, servers), connected=True)
    chosen = choose(*((device, _local_index(task)) if task.role == "worker" else ("cpu", 0)))
    if chosen.startswith("CPU"):
        affinity.bind(ranks)
    if task.role == "chief":
        return Coordinator(ranks, task, synchronous=synchronous)
    serve(ranks, task, chosen)
    return None


def _local_index(task: Task) -> int:
    """Return the index, from 0, of this worker among the workers of its node."""
    hosts = [address.rpartition(":")[0] for address in task.cluster[task.role]]
    return hosts[: task.index].count(hosts[task.index])


def _rank_device(ranks: Ranks, device: str) -> str:
    """Return the device of this rank; if it is the CPU, bind the rank to its share of the cores."""
    chosen = choose(device, ranks.local_rank)
    if chosen.startswith("CPU"):
        affinity.bind(ranks)  # now, because TensorFlow counts the cores when it starts
    return chosen


def choose(wanted: str, local_rank: int) -> str:
    """Return the device for this local rank, and hide all other GPUs from TensorFlow.

    `wanted` is the kind that the user requested: "cpu", "gpu" or "auto".

    Raises:
        ArgumentError: a GPU is requested, and this rank has none.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        tf.config.set_visible_devices([], "GPU")
        return "CPU:0"
    # Some launchers show each rank only its own GPU, which then has the number 0.
    number = 0 if len(gpus) == 1 else local_rank
    if number >= len(gpus):
        raise ArgumentError(
            f"local rank {local_rank} has no GPU: TensorFlow sees {len(gpus)}; start fewer ranks "
            "per node, or use --device cpu",
            code="gpu-unavailable",
        )
    tf.config.set_visible_devices(gpus[number], "GPU")
    # Otherwise TensorFlow allocates all memory of the GPU, and leaves none for Horovod.
    tf.config.experimental.set_memory_growth(gpus[number], True)
    return "GPU:0"
