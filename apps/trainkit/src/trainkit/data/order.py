"""The order of samples and their random draws, computed from seed, epoch and step only.

The order of an epoch is a permutation seeded by (seed, epoch), and the draws of a
batch are seeded by (seed, epoch, step). Therefore seed, epoch and step determine each batch, and a
resumed training needs no state of the input pipeline. Every sample occurs exactly once per epoch,
and each rank takes a slice of the global batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Plan:
    """The samples of each global batch, in order.

    The plan is equal on all ranks; each rank processes its slice of a batch.

    Attributes:
        samples: number of samples of the split.
        batch: number of samples in a global batch.
        seed: seed of order and draws.
        training: whether each epoch has a new order; otherwise the order of the data set is used.
    """

    samples: int
    batch: int
    seed: int
    training: bool

    @property
    def steps(self) -> int:
        """The number of batches of an epoch; the last batch may be smaller."""
        return -(-self.samples // self.batch)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the sample numbers of `epoch` in their order, (samples,)."""
        if not self.training:
            return np.arange(self.samples)
        return np.random.default_rng((self.seed, epoch)).permutation(self.samples)

    def share(self, step: int, rank: int, ranks: int) -> slice:
        """Return the slice of the global batch of `step` for `rank`; `ranks` is the world size.

        The last batch is distributed evenly: some ranks may get one sample less than others, or
        none.
        """
        count = min(self.batch, self.samples - step * self.batch)
        share, more = divmod(count, ranks)  # the same parts as torch.tensor_split
        first = rank * share + min(rank, more)
        return slice(first, first + share + (rank < more))

    def draws(self, epoch: int, step: int, each: int) -> NDArray[np.float32]:
        """Return `each` uniform random numbers in 0..1 per sample of a batch, (batch, each)."""
        generator = np.random.default_rng((self.seed, epoch, step))
        return generator.random((self.batch, each), np.float32)

    def after(self, epoch: int) -> int:
        """Return the number of the epoch after `epoch`; an evaluation always repeats epoch 0."""
        return epoch + 1 if self.training else 0
