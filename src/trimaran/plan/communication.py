"""Predict the times of all-reduces, parameter servers, copies and gathers.

The model of a message is alpha + bytes / beta, with a latency alpha and a bandwidth beta of each
link (Hockney, "The communication challenge for MPP", Parallel Computing 20, 1994). The times of the
algorithms are those of Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005), without the time of the additions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LINK_SHARE = 0.9
"""Share of a link's peak bandwidth that large messages reach. Four GH200 per node with a peak of
25 GB/s each reach a bus bandwidth of 158.65 GB/s on two nodes, 0.91 of the bound of 175 GB/s for a
hierarchical all-reduce (crickett-hpe, hpc-ai-envs); eight H100 with a peak of 450 GB/s count as
healthy from 400 GB/s on (NVIDIA dgxc-benchmarking), 0.89."""

LATENCY = 5e-6
"""Seconds of a short message if the target states no latency: an assumption. It is the order of an
MPI message between two GPUs of different nodes; large gradients make it unimportant."""


@dataclass(frozen=True)
class Wire:
    """A link as the model uses it.

    Attributes:
        bandwidth: bytes per second in each direction.
        latency: seconds of a short message.
        share: share of the bandwidth that large messages reach; 1 if it is measured with them.
    """

    bandwidth: float
    latency: float = LATENCY
    share: float = LINK_SHARE

    def seconds(self, size: float) -> float:
        """Return the time of `size` bytes, without the latency."""
        return size / (self.share * self.bandwidth)


@dataclass(frozen=True)
class Layout:
    """The devices that exchange gradients.

    Attributes:
        nodes: number of nodes.
        devices: number of devices in each node.
        within: link of a device to the others of its node; None if a node has one device.
        between: link of a node to the others; None for a single node.
    """

    nodes: int
    devices: int
    within: Wire | None = None
    between: Wire | None = None

    @property
    def ranks(self) -> int:
        """Number of all devices."""
        return self.nodes * self.devices


def all_reduce(size: float, layout: Layout) -> float:
    """Return the seconds of an all-reduce of `size` bytes on each device.

    The devices of a node reduce their parts, corresponding devices of all nodes all-reduce them,
    and the node gathers the result; both levels work at the same time on different pieces, so the
    slower one determines the time (NCCL, "Massively Scale Your Deep Learning Training with NCCL
    2.4", NVIDIA 2019). Between nodes, the faster one of ring and tree counts.
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
    """Return the seconds of a ring, of which each member sends 2 (n - 1) / n of the bytes."""
    return wire.seconds(2 * (members - 1) / members * size)


BIG = 1_000_000
"""Number of values from which on a tensor is divided over all servers (MXNET_KVSTORE_BIGARRAY_BOUND
in MXNet's documentation of environment variables)."""

PRIME = 9973
"""Factor of MXNet's hash of keys (src/kvstore/kvstore_dist.h)."""


def largest_share(tensors: Sequence[int], servers: int) -> float:
    """Return the share of all values that the most loaded of the parameter servers has.

    As in MXNet: a tensor of less than `BIG` values is on the server `key * PRIME % servers`, and
    the values of a larger one are divided evenly.
    """
    load = [0.0] * servers
    for key, size in enumerate(tensors):
        if size < BIG:
            load[key * PRIME % servers] += size
        else:
            load = [before + size / servers for before in load]
    return max(load) / sum(tensors)


def parameter_server(tensors: Sequence[int], size: float, layout: Layout) -> float:
    """Return the seconds in which a node with a server sends and receives what one step needs.

    Each node adds the gradients of its devices, sends the sum to the servers, of which each node
    has one, and gets the new weights. The busiest node receives, as a worker, all weights that
    other servers have, and as a server its share of the gradients of all other nodes; it sends as
    much. A single node exchanges gradients as in an all-reduce.

    Args:
        tensors: numbers of values of the tensors, in the order of their keys.
        size: bytes of all gradients.
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
    """Return the seconds in which the first device of a node copies `size` bytes to each other one.

    PyTorch's DataParallel does this in one process (documentation of nn.DataParallel): it copies
    all weights before each forward pass, and collects the gradients after the backward pass. The
    copies are made in turn.
    """
    return (layout.devices - 1) * layout.within.seconds(size) if layout.within else 0.0


def gather(size: float, layout: Layout) -> float:
    """Return the seconds in which each device gets `size` bytes, of which all have equal parts.

    A device receives the parts of all others; a node receives those of all other nodes once (an
    all-gather by a ring). A reduce-scatter takes as long.
    """
    inside = outside = 0.0
    if layout.devices > 1 and layout.within is not None:
        inside = layout.within.seconds(size * (layout.devices - 1) / layout.devices)
    if layout.nodes > 1 and layout.between is not None:
        outside = layout.between.seconds(size * (layout.nodes - 1) / layout.nodes)
    return max(inside, outside)
