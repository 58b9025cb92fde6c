"""The interface of TensorFlow strategies, and the strategy of one process.

Gradients are averaged inside the app's `tf.function`, each as soon as it is computed:

    gradients = strategy.average(tape.gradient(loss, variables))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from trainkit.meters import Gpu
from trainkit.ranks import Ranks
from trainkit.strategy import Strategy


class Sum:
    """The sums of a training step as a 1-d tensor, which TensorFlow computes asynchronously."""

    def __init__(self, values: tf.Tensor) -> None:
        self.values = values

    def result(self) -> list[float]:
        """Wait until the tensor is computed, and return its elements."""
        found: list[float] = self.values.numpy().tolist()
        return found


class TensorFlowStrategy(Strategy):
    """The strategy of a training with one process, and the interface of all other strategies.

    Attributes:
        device: device for `tf.device`, "CPU:0" or "GPU:0".
    """

    def __init__(self, ranks: Ranks | None = None, device: str = "CPU:0") -> None:
        super().__init__(ranks)
        self.device = device

    @property
    def replicas(self) -> int:
        """The number of replicas of the network in the job."""
        return self.size

    def facts(self) -> dict[str, Any]:
        """Return the facts of TensorFlow for `environment.json`: device, GPU, threads."""
        return {"device": self.device, "gpu": self._gpu(), "threads": {
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),  # 0: all cores
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
        }}

    def gpu(self) -> Gpu | None:
        """Return this rank's GPU without its PCI address, which TensorFlow does not report."""
        if not self.device.startswith("GPU"):
            return None
        return Gpu(int(tf.config.get_visible_devices("GPU")[0].name.rsplit(":", 1)[1]))

    def _gpu(self) -> dict[str, Any] | None:
        if not self.device.startswith("GPU"):
            return None
        details = tf.config.experimental.get_device_details(tf.config.get_visible_devices("GPU")[0])
        built = tf.sysconfig.get_build_info()
        return {
            "name": details.get("device_name"),
            "runtime": f"CUDA {built['cuda_version']}" if built["is_cuda_build"] else "ROCm",
            "cudnn": built.get("cudnn_version"),
        }

    def broadcast(self, variables: Iterable[Any]) -> None:
        """Assign rank 0's values to `variables` on every rank."""

    def average(self, gradients: Sequence[tf.Tensor], of: str = "network") -> list[tf.Tensor]:
        """Return the averages of `gradients` over the ranks; call this method in a `tf.function`.

        Args:
            gradients: gradients of all variables of a network; sparse gradients become dense.
            of: name of the network that has these gradients, unique in the training.
        """
        return list(gradients)

    def total(self, values: tf.Tensor) -> tf.Tensor:
        """Return the sums of `values` over the ranks; call this method in a `tf.function`."""
        return values

    def equalize(self, variables: Iterable[Any]) -> None:
        """Set each of `variables` to its mean over all replicas, on every replica.

        Use this method for the running statistics of batch normalization, which differ between
        replicas. All ranks must call this method at the same moment, outside of a `tf.function`,
        and always with the same variables.
        """
