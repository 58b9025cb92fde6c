"""Which samples, in which order, with which random draws: the same from three numbers.

The order of an epoch is a permutation seeded by (seed, epoch), and the draws of a
batch are seeded by (seed, epoch, step). So any batch can be made again from three
numbers: a resumed training needs no state of the input pipeline, every sample
comes exactly once per epoch, and ranks share a global batch by slicing it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Plan:
    """Which samples make up a batch; the same on every rank, each takes its slice.

    Attributes:
        samples: of the split.
        batch: samples of a global batch.
        seed: of order and draws.
        training: in a new order each epoch, else always in that of the data set.
    """

    samples: int
    batch: int
    seed: int
    training: bool

    @property
    def steps(self) -> int:
        """Return the batches of an epoch; the last one may be smaller."""
        return -(-self.samples // self.batch)

    def order(self, epoch: int) -> NDArray[np.int64]:
        """Return the sample numbers of `epoch` in order."""
        if not self.training:
            return np.arange(self.samples)
        return np.random.default_rng((self.seed, epoch)).permutation(self.samples)

    def share(self, step: int, rank: int, ranks: int) -> slice:
        """Return which part of the global batch of `step` is that of `rank`.

        The last batch is spread evenly: it may be one sample fewer for some ranks, or none.
        """
        count = min(self.batch, self.samples - step * self.batch)
        share, more = divmod(count, ranks)  # as torch.tensor_split parts a batch
        first = rank * share + min(rank, more)
        return slice(first, first + share + (rank < more))

    def draws(self, epoch: int, step: int, each: int) -> NDArray[np.float32]:
        """Return uniform draws in 0..1 for a global batch, (batch, each)."""
        generator = np.random.default_rng((self.seed, epoch, step))
        return generator.random((self.batch, each), np.float32)

    def after(self, epoch: int) -> int:
        """Return the epoch that follows; an evaluation is always the same one, 0."""
        return epoch + 1 if self.training else 0
