"""The strategy that an option names, on the device and the cores of this rank."""

from __future__ import annotations

import tensorflow as tf

from trainkit import affinity
from trainkit.exits import ArgumentError
from trainkit.ranks import Ranks, detect
from trainkit.tensorflow.horovod import Horovod
from trainkit.tensorflow.strategy import TensorFlowStrategy


def start(name: str, *, device: str = "auto") -> TensorFlowStrategy:
    """Return the strategy `name`, connected with the other ranks of the job.

    To be called before TensorFlow computes anything.

    Args:
        name: one of `trainkit.tensorflow.STRATEGIES`.
        device: "cpu", "gpu", or "auto": the GPU of this local rank where there is one.

    Raises:
        ArgumentError: the launcher's variables do not fit, or something is not there.
    """
    ranks = detect()
    if name == "single":
        if ranks.size > 1:
            raise ArgumentError(
                f"{ranks.launcher} started {ranks.size} ranks, and --strategy single would train "
                "each on its own: say --strategy horovod"
            )
        return TensorFlowStrategy(Ranks(), choose(device, 0))
    chosen = choose(device, ranks.local_rank)
    if chosen.startswith("CPU"):
        affinity.bind(ranks)  # TensorFlow counts the cores that are left to it when it begins
    return Horovod(ranks, chosen)


def choose(wanted: str, local_rank: int) -> str:
    """Return the device `wanted` of this local rank, the only one that TensorFlow then sees.

    Raises:
        ArgumentError: a GPU is wanted, and there is none for this rank.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if wanted == "cpu" or (wanted == "auto" and not gpus):
        tf.config.set_visible_devices([], "GPU")
        return "CPU:0"
    # A launcher may show each rank its own GPU only, which then is number 0.
    number = 0 if len(gpus) == 1 else local_rank
    if number >= len(gpus):
        raise ArgumentError(
            f"local rank {local_rank} has no GPU: TensorFlow sees {len(gpus)}; start fewer ranks "
            "per node, or say --device cpu"
        )
    tf.config.set_visible_devices(gpus[number], "GPU")
    # Otherwise it takes all memory of the GPU, also from Horovod.
    tf.config.experimental.set_memory_growth(gpus[number], True)
    return "GPU:0"
