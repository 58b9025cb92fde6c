"""Gradients in few, large pieces: what goes over a network in pieces of kilobytes is slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

LARGE = 25 << 20
"""Bytes of a bucket, as DistributedDataParallel has them: Li et al., arXiv:2006.15704, sec. 4."""


def dense(tensor: Tensor) -> Tensor:
    """Return a contiguous view of `tensor`, whose dimensions may be stored in any order.

    Horovod and MPI take no others, and a sum over ranks does not mind the order.
    """
    return tensor.permute(sorted(range(tensor.ndim), key=tensor.stride, reverse=True))


def gradients(networks: Sequence[nn.Module]) -> list[Tensor]:
    """Return the gradients that there are, in the order of the networks and their parameters."""
    parameters = [parameter for network in networks for parameter in network.parameters()]
    return [dense(parameter.grad) for parameter in parameters if parameter.grad is not None]


def buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Yield `tensors` in groups of one type and device, each of about `LARGE` bytes at most."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bytes_ = tensor.numel() * tensor.element_size()
        other = bucket and (tensor.dtype, tensor.device) != (bucket[0].dtype, bucket[0].device)
        if bucket and (other or size + bytes_ > LARGE):
            yield bucket
            bucket, size = [], 0
        bucket.append(tensor)
        size += bytes_
    if bucket:
        yield bucket


def flatten(bucket: Sequence[Tensor]) -> Tensor:
    """Return the elements of all tensors of a bucket in one new tensor."""
    return torch.cat([tensor.flatten() for tensor in bucket])


def unflatten(flat: Tensor, bucket: Sequence[Tensor]) -> None:
    """Write what `flatten` has returned, changed since, back to the tensors."""
    parts = torch.split(flat, [tensor.numel() for tensor in bucket])
    for tensor, part in zip(bucket, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
