"""The description of a training, from which formulas compute its memory and time."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from language_model.layout import Layout
from language_model.lora import Lora
from language_model.settings import EstimateSettings
from language_model.shapes import SHAPES, Shape
from trainkit.torch.mesh import spread


@dataclass(frozen=True)
class Job:
    """The description of a training: the network, its division, its batches and its ranks.

    Attributes:
        shape: shape of the whole decoder.
        layout: how the work is divided.
        ranks: number of ranks.
        sequence: tokens of a sequence.
        batch: sequences of a step on all ranks.
        masked: whether tokens see only tokens of their own document.
        lora: settings of the low-rank adaptation; None if all weights are trained.
    """

    shape: Shape
    layout: Layout
    ranks: int
    sequence: int
    batch: int
    masked: bool = False
    lora: Lora | None = None

    @classmethod
    def of(cls, settings: EstimateSettings, ranks: int) -> Job:
        """Return the training that the options describe, on `ranks` ranks.

        Raises:
            ArgumentError: the layout is impossible.
        """
        shape, layout = SHAPES[settings.model], Layout.of(settings)
        shape = dataclasses.replace(shape, vocabulary=settings.vocabulary or shape.vocabulary)
        sequence = settings.sequence or shape.positions
        spread(layout.axes, ranks)
        layout.check(shape, ranks, sequence, settings.batch_size)
        return cls(
            shape, layout, ranks, sequence, settings.batch_size, settings.document_mask,
            Lora(settings.lora_rank, settings.lora_rank) if settings.lora_rank else None,
        )

    @property
    def tokens(self) -> int:
        """The number of tokens of a micro-batch that one rank processes.

        The ranks of a tensor group process the same tokens. Context ranks divide each sequence.
        """
        parts = self.layout.data_ranks(self.ranks) * self.layout.micro_batches
        return self.batch // parts * self.sequence // self.layout.context

    @property
    def replicas(self) -> int:
        """The number of ranks whose gradients are averaged."""
        return self.ranks // (self.layout.tensor * self.layout.pipeline)
