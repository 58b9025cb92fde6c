"""Compute the bytes that all replicas of a training send to each other in one step.

A job cannot count these bytes: memory and GPU links have no counters, and the counters of network
devices include other programs. The formulas leave out the headers of messages, and the weights that
a worker reads again for further micro-batches.
"""

from __future__ import annotations

SENT = "sent_bytes_per_step"
"""Metric key: bytes that all ranks or devices send in one step."""


def all_reduce(gradients: int, replicas: int) -> int:
    """Return the bytes that `replicas` replicas send to add their gradients in a ring.

    Each one sends 2 (replicas - 1) / replicas times the gradients, the least that is possible
    (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    J. Parallel Distrib. Comput. 69, 2009).

    Args:
        gradients: size of the gradients of one replica, in bytes.
        replicas: number of replicas.
    """
    return 2 * (replicas - 1) * gradients


def parameter_server(
    weights: int, gradients: int, batch: int, workers: int, *, synchronous: bool
) -> int:
    """Return the bytes that coordinator, servers and workers send in one step.

    The servers send the weights to each worker that takes part, and the coordinator sends the
    images. In asynchronous SGD, one worker takes part, and sends its gradients to the servers. In
    synchronous SGD, each worker sends its gradients to the coordinator, which sends their sum to a
    worker, which sends it to the servers.

    Args:
        weights: size of the trainable weights, in bytes.
        gradients: size of the gradients of one replica, in bytes.
        batch: size of the images of one step, in bytes.
        workers: workers that share the step; 1 in asynchronous SGD.
        synchronous: whether the coordinator adds the gradients.
    """
    through_coordinator = 2 * gradients if synchronous else 0
    return workers * (weights + gradients) + through_coordinator + batch
