"""The minibatch standard deviation, a feature for the discriminator."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from futuregan.growth import BatchSizes
from trainkit.torch import across
from trainkit.torch.strategy import TorchStrategy

TINY = 1e-8


class MinibatchStddev(nn.Module):
    """A layer that appends a feature: the standard deviation over a group of clips.

    Source: arXiv:1710.10196, section 3.

    If a rank processes at least one group of clips at once, each group has clips of a single rank;
    the size of a micro-batch does not change the groups. If a rank processes fewer clips at once
    than a group has, the group consists of the clips of all ranks, because the deviation of a
    single clip is 0.

    Args:
        group: largest number of clips in a group.
        micro_batch_sizes: largest number of clips that a rank processes at once, for each side of
            the frames.
        strategy: the strategy that connects the ranks.
    """

    def __init__(self, group: int, micro_batch_sizes: BatchSizes, strategy: TorchStrategy) -> None:
        super().__init__()
        self._group, self._micro_batch_sizes, self._strategy = group, micro_batch_sizes, strategy

    def is_global(self, size: int) -> bool:
        """Return whether each group contains clips of all ranks, for frames of `size` pixels."""
        return self._strategy.size > 1 and self._micro_batch_sizes.at(size) < self._group

    def split_sizes(self, clips: int, batch: int, size: int) -> list[int]:
        """Return the sizes of the micro-batches into which a rank splits its `clips`.

        Args:
            clips: number of clips of this rank; the last batch of an epoch may have fewer.
            batch: number of clips of a rank in a full batch.
            size: side of the frames, in pixels.
        """
        largest = self._micro_batch_sizes.at(size)
        if self.is_global(size):  # all ranks need the same number of micro-batches
            return split_evenly(clips, -(-batch // largest))
        groups = self._group_sizes(clips)
        groups_at_once = max(1, largest // max(1, groups[0]))
        return [
            sum(groups[at : at + groups_at_once]) for at in range(0, len(groups), groups_at_once)
        ]

    def forward(self, values: Tensor, batches: int, size: int) -> Tensor:
        """Return `values` with the minibatch standard deviation as one more feature.

        Args:
            values: features (n, F, T, H, W) of several batches, one after the other.
            batches: number of these batches.
            size: side of the frames of the clips, in pixels; it determines whether the clips of all
                ranks form one group (see `is_global`).

        Returns:
            Features (n, F + 1, T, H, W).
        """
        is_global = self.is_global(size)
        groups = [
            group for batch in values.tensor_split(batches)
            for group in (
                [batch] if is_global else torch.split(batch, self._group_sizes(len(batch)))
            )
        ]
        features = [
            self._deviation(group.float(), is_global).to(values.dtype)
            .expand(len(group), 1, *values.shape[2:])
            for group in groups
        ]
        return torch.cat([values, torch.cat(features)], 1)

    def _group_sizes(self, clips: int) -> list[int]:
        return split_evenly(clips, max(1, -(-clips // self._group)))

    def _deviation(self, values: Tensor, is_global: bool) -> Tensor:
        """Return the standard deviation over the clips, averaged over all features, as a scalar."""
        mean = self._mean(values, is_global)
        return self._mean((values - mean).square(), is_global).add(TINY).sqrt().mean()

    def _mean(self, values: Tensor, is_global: bool) -> Tensor:
        if not is_global:
            return values.mean(0)
        count = values.new_tensor([float(len(values))])  # ranks may differ in the last batch
        self._strategy.average([count])
        return across.mean(values.sum(0), self._strategy) / count


def split_evenly(count: int, number: int) -> list[int]:
    """Return `number` counts with sum `count` that differ by at most 1, in descending order."""
    return [count // number + (at < count % number) for at in range(number)]
