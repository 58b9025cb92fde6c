"""Predict the times of all-reduces, parameter servers, copies and gathers.

A message takes the time alpha + bytes / beta, where alpha is the latency and beta the bandwidth of
the link (Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994). The formulas
for ring and tree are from Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005); the time of the additions is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LINK_SHARE = 0.9
"""Fraction of a link's peak bandwidth that large messages reach.

Two nodes, each with four GH200 and one link of 25 GB/s peak per GH200, reach a bus bandwidth of
158.65 GB/s (crickett-hpe, hpc-ai-envs): 0.91 of the bound of 175 GB/s. The bound is that of a
hierarchical all-reduce, in which each node sends all bytes once, at 4 x 25 GB/s. The bus
bandwidth of n GPUs is 2 (n - 1) / n x bytes / time, which is 1.75 x 100 GB/s for n = 8. Eight
H100 with a peak of 450 GB/s are regarded as healthy if they reach 400 GB/s, which is 0.89
(NVIDIA dgxc-benchmarking).
"""

LATENCY = 5e-6
"""Assumed time of a short message in seconds, if the target states no latency. It has the order of
magnitude of an MPI message between GPUs of two nodes; with large gradients it hardly matters."""


@dataclass(frozen=True)
class Wire:
    """A network link, as the model uses it.

    Attributes:
        bandwidth: bandwidth in bytes per second, in each direction.
        latency: time of a short message in seconds.
        share: fraction of `bandwidth` that large messages reach; 1 if `bandwidth` was measured with
            large messages.
    """

    bandwidth: float
    latency: float = LATENCY
    share: float = LINK_SHARE

    def seconds(self, size: float) -> float:
        """Return the time to transfer `size` bytes in seconds, without the latency."""
        return size / (self.share * self.bandwidth)


@dataclass(frozen=True)
class Layout:
    """The devices that exchange gradients.

    Attributes:
        nodes: number of nodes.
        devices: number of devices in each node.
        within: link between the devices of a node; None if a node has one device.
        between: link between the nodes; None for a single node.
    """

    nodes: int
    devices: int
    within: Wire | None = None
    between: Wire | None = None

    @property
    def ranks(self) -> int:
        """The number of devices in all nodes."""
        return self.nodes * self.devices


def all_reduce(size: float, layout: Layout) -> float:
    """Return the time of an all-reduce of `size` bytes on each device, in seconds.

    The all-reduce is hierarchical: a reduce-scatter within each node, an all-reduce between nodes,
    and an all-gather within each node. Both levels work at the same time on different pieces of the
    data, so the slower level determines the time (NCCL, "Massively Scale Your Deep Learning
    Training with NCCL 2.4", NVIDIA 2019). Between nodes, the faster of ring and tree is used.
    """
    inside = outside = waiting = 0.0
    if layout.devices > 1 and layout.within is not None:
        inside = _ring(size, layout.devices, layout.within)
        waiting += 2 * (layout.devices - 1) * layout.within.latency
    if layout.nodes > 1 and layout.between is not None:
        wire = layout.between
        ring = _ring(size, layout.nodes, wire) + 2 * (layout.nodes - 1) * wire.latency
        tree = 2 * wire.seconds(size) + 2 * math.ceil(math.log2(layout.nodes)) * wire.latency
        outside = min(ring, tree)
    return max(inside, outside) + waiting


def _ring(size: float, members: int, wire: Wire) -> float:
    """Return the time of a ring all-reduce in seconds, without the latencies.

    Each of the n members sends 2 (n - 1) / n of the bytes.
    """
    return wire.seconds(2 * (members - 1) / members * size)


BIG = 1_000_000
"""Smallest number of values of a tensor that is divided over all servers
(MXNET_KVSTORE_BIGARRAY_BOUND in MXNet's documentation of environment variables)."""

PRIME = 9973
"""The factor in the hash function by which MXNet assigns a key to a server
(src/kvstore/kvstore_dist.h)."""


def largest_share(tensors: Sequence[int], servers: int) -> float:
    """Return the fraction of all values that the most loaded parameter server stores.

    The values are distributed as in MXNet: a tensor of less than `BIG` values is stored on the
    server `key * PRIME % servers`, and a larger tensor is divided evenly over all servers.
    """
    load = [0.0] * servers
    for key, size in enumerate(tensors):
        if size < BIG:
            load[key * PRIME % servers] += size
        else:
            load = [before + size / servers for before in load]
    return max(load) / sum(tensors)


def parameter_server(tensors: Sequence[int], size: float, layout: Layout) -> float:
    """Return the time in seconds in which the busiest node sends and receives the data of a step.

    Each node runs one parameter server. Each node adds the gradients of its devices, sends the sum
    to all servers, and gets the new weights. The busiest node receives the weights that the other
    servers store, and the gradients of all other nodes for the weights that its own server stores.
    It sends the same amount of data. A single node exchanges gradients by an all-reduce.

    Args:
        tensors: number of values of each tensor, in the order of their keys.
        size: size of all gradients in bytes.
        layout: the devices.
    """
    inside = all_reduce(size, Layout(1, layout.devices, layout.within))
    if layout.nodes == 1 or layout.between is None:
        return inside
    others = layout.nodes - 1
    share = largest_share(tensors, layout.nodes)
    received = size * (others / layout.nodes + share * others)
    return max(inside, layout.between.seconds(received))


def copies(size: float, layout: Layout) -> float:
    """Return the time in seconds to copy `size` bytes from the first device to each other device.

    PyTorch's DataParallel does this within one process (documentation of nn.DataParallel): it
    copies all weights before each forward pass, and collects the gradients after the backward pass.
    The copies are made one after the other.
    """
    return (layout.devices - 1) * layout.within.seconds(size) if layout.within else 0.0


def gather(size: float, layout: Layout) -> float:
    """Return the time of a ring all-gather of `size` bytes, in seconds.

    At first, each device has an equal part of the bytes. Each device receives the parts of all
    other devices, and each node receives the parts of all other nodes once. A reduce-scatter takes
    the same time.
    """
    inside = outside = 0.0
    if layout.devices > 1 and layout.within is not None:
        inside = layout.within.seconds(size * (layout.devices - 1) / layout.devices)
    if layout.nodes > 1 and layout.between is not None:
        outside = layout.between.seconds(size * (layout.nodes - 1) / layout.nodes)
    return max(inside, outside)
