"""Predict the time of a training step from its computation and its communication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

from trimaran.plan import communication
from trimaran.plan.communication import Layout
from trimaran.plan.work import FP32, TRAINING, Network
from trimaran.recipes.planning import Exchange

VARIATION = 0.08 / 5.4
"""Standard deviation of the speed of devices of the same model, relative to the mean speed. In five
computing centres, GPUs of one model differ by 8 % on average (Sinha et al., "Not All GPUs Are
Created Equal", SC22, arXiv:2208.11035). This value is interpreted as the distance between the
whiskers of a box plot, which is 5.4 standard deviations of a normal distribution."""

CONTENTION = 0.189
"""Relative slowdown of computation during communication, because both use the memory and the
processors of a device. The value is the mean over A100, H100, MI210 and MI250 (arXiv:2507.03114,
abstract)."""

BUCKET = 25 * 2**20
"""Bytes of gradients that are sent together (`bucket_cap_mb` of PyTorch's DistributedDataParallel).
Horovod's default is 128 MB, and 64 MB in older versions, but Horovod sends gradients that are ready
earlier."""


@dataclass(frozen=True)
class Step:
    """The predicted times of a training step, in seconds.

    Attributes:
        compute: computation time of one device alone.
        stragglers: additional computation time of the slowest device.
        contention: additional computation time because communication takes place at the same time.
        exposed: communication time during which no device computes.
        communication: total communication time.
    """

    compute: float
    stragglers: float
    contention: float
    exposed: float
    communication: float

    @property
    def seconds(self) -> float:
        """The duration of the whole step in seconds."""
        return self.compute + self.stragglers + self.contention + self.exposed

    @property
    def efficiency(self) -> float:
        """The throughput per device, relative to the throughput of one device alone."""
        return self.compute / self.seconds


def predict(
    network: Network, compute: float, layout: Layout, exchange: Exchange = "all-reduce",
    width: int = FP32,
) -> Step:
    """Return the times of a step for any kind of gradient exchange.

    Args:
        network: the network.
        compute: seconds in which one device computes the step alone.
        layout: the devices.
        exchange: how the devices exchange gradients.
        width: bytes of each weight that FSDP gathers.
    """
    if layout.ranks == 1:
        return Step(compute, 0.0, 0.0, 0.0, 0.0)
    if exchange == "sharded":
        return sharded(compute, layout, width * network.parameters)
    slowest = _slowest(compute, layout)
    if exchange == "parameter-server":
        tensors = [size for layer in network.layers for size in layer.tensors]
        whole = communication.parameter_server(tensors, network.gradient_bytes, layout)
        # Weights are received while the next step computes, so only a longer time is exposed.
        exposed = max(0.0, whole - slowest)
    elif exchange == "all-reduce-after":
        exposed = whole = communication.all_reduce(network.gradient_bytes, layout)
    else:
        end, whole = _overlapped(
            network, slowest, lambda size: communication.all_reduce(size, layout))
        exposed = max(0.0, end - slowest)
    return _step(compute, slowest, whole, exposed)


def _slowest(compute: float, layout: Layout) -> float:
    """Return the expected computation time of the slowest device, in seconds."""
    return compute * (1 + VARIATION * expected_maximum(layout.ranks))


def _step(compute: float, slowest: float, whole: float, exposed: float) -> Step:
    """Return the times of a step; all arguments are in seconds.

    Args:
        compute: computation time of one device alone.
        slowest: computation time of the slowest device, without contention.
        whole: total communication time.
        exposed: communication time during which no device computes.
    """
    return Step(compute, slowest - compute, CONTENTION * (whole - exposed), exposed, whole)


def computation(seconds: float, predicted: Callable[[float], Step]) -> float:
    """Return the computation time of one device alone, in seconds, from the time of a whole step.

    Args:
        seconds: published or measured time of the step of all devices.
        predicted: function that predicts the step from the computation time of one device.
    """
    found = seconds
    for _ in range(ITERATIONS):
        found *= seconds / predicted(found).seconds
    return found


ITERATIONS = 20
"""Number of iterations in which `computation` solves for the computation time. The iteration
converges, because the other times of a step depend little on the computation time."""


def copied(compute: float, layout: Layout, size: float) -> Step:
    """Return the times of a step of DataParallel, which does not compute during its copies.

    Args:
        compute: seconds in which one device computes the step alone.
        layout: the devices of one node.
        size: bytes that the first device exchanges with each other device.
    """
    whole = communication.copies(size, layout)
    return _step(compute, _slowest(compute, layout), whole, exposed=whole)


def sharded(compute: float, layout: Layout, size: float) -> Step:
    """Return the times of a step of FSDP, which divides the weights over all ranks.

    FSDP gathers the weights for the forward pass and again for the backward pass, and reduces and
    scatters the gradients (Zhao et al., "PyTorch FSDP", arXiv:2304.11277, section 3). Other layers
    compute at the same time.

    Args:
        compute: seconds in which one device computes the step alone.
        layout: the devices.
        size: bytes of all weights, in the precision in which they are sent.
    """
    slowest, whole = _slowest(compute, layout), 3 * communication.gather(size, layout)
    return _step(compute, slowest, whole, max(0.0, whole - slowest))


def _overlapped(
    network: Network, compute: float, seconds: Callable[[float], float]
) -> tuple[float, float]:
    """Return the time at which the last exchange ends, and the total time of exchanges, in seconds.

    The backward pass computes the layers in reverse order; the time of a layer is proportional to
    the number of its operations. The exchange of a bucket starts when its gradients are complete
    and the exchange of the previous bucket has ended.
    """
    end = whole = 0.0
    for ready, size in _buckets(network, compute):
        took = seconds(size)
        end = max(end, ready) + took
        whole += took
    return end, whole


def _buckets(network: Network, compute: float) -> Iterator[tuple[float, float]]:
    """Yield for each bucket of gradients the time at which it is complete, in s, and its bytes."""
    forward = compute / TRAINING
    backward, done, size = compute - forward, 0, 0
    for layer in reversed(network.layers):
        done += layer.flops
        size += layer.gradient_bytes
        if size >= BUCKET:
            yield forward + backward * done / max(network.flops, 1), size
            size = 0
    if size:
        yield compute, size


def expected_maximum(count: int) -> float:
    """Return the expected maximum of `count` independent standard normal values.

    It is approximated by the quantile at (n - 0.375) / (n + 0.25), where n is `count` (Blom,
    "Statistical Estimates and Transformed Beta-Variables", 1958).
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0
