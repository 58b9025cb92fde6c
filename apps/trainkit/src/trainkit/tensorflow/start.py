"""Start the strategy of a training on the device and the cores of this rank."""

from __future__ import annotations

import tensorflow as tf

from trainkit import affinity
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks, detect
from trainkit.tensorflow.horovod import Horovod
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
    chosen = choose(device, ranks.local_rank)
    if chosen.startswith("CPU"):
        affinity.bind(ranks)  # now, because TensorFlow counts the cores when it starts
    return Horovod(ranks, chosen)


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
