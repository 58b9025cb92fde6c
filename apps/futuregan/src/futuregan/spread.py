"""How much the clips of a minibatch differ, as a feature that the discriminator sees."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from futuregan.growth import BatchSizes
from trainkit.torch import across
from trainkit.torch.strategy import TorchStrategy

TINY = 1e-8


class Spread(nn.Module):
    """Adds a feature: how much the clips of a group differ. arXiv:1710.10196, section 3.

    Where a rank has fewer clips than a group, the group is the clips of all ranks: one clip
    alone has no deviation. Groups that lie within a rank's part of a batch are the same for any
    number of ranks, and whether the batch is taken whole or in parts.

    Args:
        group: clips of a group, at most.
        at_once: clips that a rank has at once, by the side of the frames.
        strategy: this rank and the others.
    """

    def __init__(self, group: int, at_once: BatchSizes, strategy: TorchStrategy) -> None:
        super().__init__()
        self._group, self._at_once, self._strategy = group, at_once, strategy

    def gathers(self, size: int) -> bool:
        """Return whether groups of frames of `size` pixels are of clips of all ranks."""
        return self._strategy.size > 1 and self._at_once.at(size) < self._group

    def parts(self, clips: int, batch: int, size: int) -> list[int]:
        """Return how many of a rank's `clips` to take at once, one part after the other.

        Args:
            clips: that this rank has of a batch; the last one of an epoch is smaller.
            batch: clips of a whole batch.
            size: side of the frames.
        """
        most = self._at_once.at(size)
        if self.gathers(size):  # all ranks go through as many parts
            return shares(clips, -(-batch // most))
        groups = self._groups(clips)
        some = max(1, most // max(1, groups[0]))
        return [sum(groups[at : at + some]) for at in range(0, len(groups), some)]

    def forward(self, values: Tensor, batches: int, size: int) -> Tensor:
        """Return `values` with a feature more; they are so many batches, one after the other."""
        gathers = self.gathers(size)
        groups = [
            group for batch in values.tensor_split(batches)
            for group in ([batch] if gathers else torch.split(batch, self._groups(len(batch))))
        ]
        added = [
            self._deviation(group.float(), gathers).to(values.dtype)
            .expand(len(group), 1, *values.shape[2:])
            for group in groups
        ]
        return torch.cat([values, torch.cat(added)], 1)

    def _groups(self, clips: int) -> list[int]:
        return shares(clips, max(1, -(-clips // self._group)))

    def _deviation(self, values: Tensor, gathers: bool) -> Tensor:
        """Return the mean over all features of their standard deviations over the clips."""
        middle = self._mean(values, gathers)
        return self._mean((values - middle).square(), gathers).add(TINY).sqrt().mean()

    def _mean(self, values: Tensor, gathers: bool) -> Tensor:
        if not gathers:
            return values.mean(0)
        count = values.new_tensor([float(len(values))])  # the last batch is not the same for all
        self._strategy.average([count])
        return across.mean(values.sum(0), self._strategy) / count


def shares(count: int, number: int) -> list[int]:
    """Return a count divided into a number of shares as equal as can be, the larger ones first."""
    return [count // number + (at < count % number) for at in range(number)]
