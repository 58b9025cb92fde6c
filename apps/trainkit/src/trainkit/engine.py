"""Who else trains: rank, size and averages over the ranks. One process for now.

The loop of an app asks only this interface, so that the distributed engines can
be added without touching it.
"""

from __future__ import annotations

from dataclasses import dataclass

ENGINES = ("single",)


@dataclass(frozen=True)
class Engine:
    """One process of a training: the only one.

    Attributes:
        name: one of `ENGINES`.
        rank: number of this process, 0 writes files and speaks.
        size: number of processes; the global batch is `size` times the batch per rank.
    """

    name: str = "single"
    rank: int = 0
    size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this process writes the metrics, the checkpoints and the console."""
        return self.rank == 0
