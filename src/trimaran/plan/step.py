"""Predict the time of a training step from its computation and its communication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import NormalDist

from trimaran.plan import communication
from trimaran.plan.communication import Layout
from trimaran.plan.work import TRAINING, Network
from trimaran.recipes.planning import Exchange

VARIATION = 0.08 / 5.4
"""Standard deviation of the speed of devices of the same kind, relative to their mean. In five
computing centres, equal GPUs differ by 8 % on average (Sinha et al., "Not All GPUs Are Created
Equal", SC22, arXiv:2208.11035); this is taken as the distance of the whiskers of a box plot, which
is 5.4 standard deviations of a normal distribution."""

CONTENTION = 0.189
"""Slowdown of computation while communication takes place: both share memory and processors of a
device. Mean over A100, H100, MI210 and MI250 (arXiv:2507.03114, abstract)."""

BUCKET = 25 * 2**20
"""Bytes of gradients that are sent together (`bucket_cap_mb` of PyTorch's DistributedDataParallel).
Horovod's default is 128 MB, in older versions 64 MB, but it sends earlier what is ready."""


@dataclass(frozen=True)
class Step:
    """The predicted times of a step, in seconds.

    Attributes:
        compute: computation of one device that waits for nobody.
        stragglers: additional time of the slowest of all devices.
        contention: additional time of the computation beside communication.
        exposed: communication that no computation hides.
        communication: all communication.
    """

    compute: float
    stragglers: float
    contention: float
    exposed: float
    communication: float

    @property
    def seconds(self) -> float:
        """Time of the whole step."""
        return self.compute + self.stragglers + self.contention + self.exposed

    @property
    def efficiency(self) -> float:
        """Throughput of a device, relative to a device that works alone."""
        return self.compute / self.seconds


def of(
    network: Network, compute: float, layout: Layout, exchange: Exchange, width: int
) -> Step:
    """Return the times of a step, whatever the exchange.

    Args:
        network: the network.
        compute: seconds in which one device computes the step alone.
        layout: the devices.
        exchange: the way in which they exchange gradients.
        width: bytes of a weight that FSDP gathers.
    """
    if exchange == "sharded" and layout.ranks > 1:
        return sharded(compute, layout, width * network.parameters)
    return predict(network, compute, layout, exchange)


def predict(
    network: Network, compute: float, layout: Layout, exchange: Exchange = "all-reduce",
) -> Step:
    """Return the times of a step.

    Args:
        network: the network.
        compute: seconds in which one device computes the step alone.
        layout: the devices.
        exchange: the way in which they exchange gradients.
    """
    if layout.ranks == 1:
        return Step(compute, 0.0, 0.0, 0.0, 0.0)
    slowest = compute * (1 + VARIATION * expected_maximum(layout.ranks))
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
    return Step(compute, slowest - compute, CONTENTION * (whole - exposed), exposed, whole)


def computation(seconds: float, predicted: Callable[[float], Step]) -> float:
    """Return the seconds in which one device computes a step that takes `seconds` on several.

    Args:
        seconds: published or measured time of the step.
        predicted: function that predicts the step from the computation of one device.
    """
    found = seconds
    for _ in range(ITERATIONS):
        found *= seconds / predicted(found).seconds
    return found


ITERATIONS = 20
"""Iterations of `computation`; each one reduces the error, because the other times of a step change
little with the computation."""


def copied(compute: float, layout: Layout, size: float) -> Step:
    """Return the times of a step of DataParallel, which hides no copy.

    Args:
        compute: seconds in which one device computes the step alone.
        layout: the devices of one node.
        size: bytes that the first device exchanges with each other device.
    """
    stragglers = compute * VARIATION * expected_maximum(layout.ranks)
    whole = communication.copies(size, layout)
    return Step(compute, stragglers, 0.0, whole, whole)


def sharded(compute: float, layout: Layout, size: float) -> Step:
    """Return the times of a step of FSDP, whose weights are divided over all ranks.

    The weights are gathered for the forward and for the backward pass, and the gradients are
    reduced and scattered (Zhao et al., "PyTorch FSDP", arXiv:2304.11277, section 3), while other
    layers compute.

    Args:
        compute: seconds in which one device computes the step alone.
        layout: the devices.
        size: bytes of all weights, in the precision in which they are sent.
    """
    slowest = compute * (1 + VARIATION * expected_maximum(layout.ranks))
    whole = 3 * communication.gather(size, layout)
    exposed = max(0.0, whole - slowest)
    return Step(compute, slowest - compute, CONTENTION * (whole - exposed), exposed, whole)


def _overlapped(
    network: Network, compute: float, seconds: Callable[[float], float]
) -> tuple[float, float]:
    """Return the end of the last exchange, and the time of all exchanges.

    The backward pass goes through the layers in reverse order, and takes for each a time in
    proportion to its operations. When the gradients of a bucket are complete, their exchange
    starts, unless that of the bucket before still lasts.
    """
    end = whole = 0.0
    for ready, size in _buckets(network, compute):
        took = seconds(size)
        end = max(end, ready) + took
        whole += took
    return end, whole


def _buckets(network: Network, compute: float) -> Iterator[tuple[float, float]]:
    """Yield the time at which each bucket is complete, and its bytes."""
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
    """Return the expected maximum of `count` standard normal values.

    Blom, "Statistical Estimates and Transformed Beta-Variables" (1958): the quantile at
    (n - 0.375) / (n + 0.25).
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0
