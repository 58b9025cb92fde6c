"""How the work of a training is divided over the ranks, and which divisions are possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.distributed.pipelining import Schedule1F1B

from language_model import float8
from language_model.settings import LayoutSettings
from language_model.shapes import Shape
from trainkit.exits import ArgumentError
from trainkit.torch.mesh import REST

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.bfloat16}
"""Precision -> 16-bit type of matrix products; the weights that are updated stay in fp32. With fp8,
this is the type of the products outside of the blocks, and of the results of the fp8 products."""
STAGES_PER_RANK = 2  # in an interleaved pipeline


def without_training(chosen: str | None, trained: str) -> str:
    """Return the precision of a command that does not train.

    Args:
        chosen: precision that the user chose; None for the precision of the training, or bf16 if
            the training used fp8.
        trained: precision of the training.
    """
    return chosen or ("bf16" if trained == "fp8" else trained)


@dataclass(frozen=True)
class Layout:
    """The division of the work of a training over the ranks; see `parallelize`.

    Attributes:
        data_parallel: ddp, zero1, zero2 or fsdp.
        tensor: ranks that share each weight matrix.
        pipeline: ranks that share the blocks.
        context: ranks that share each sequence.
        schedule: order of the passes of a pipeline: gpipe, 1f1b or interleaved.
        micro_batches: number of parts of the batch of a rank, which are processed one after the
            other.
        recompute: activations that the backward pass computes again: none, selective or full.
        precision: fp32, bf16, fp16 or fp8.
        compile: whether each block is compiled.
    """

    data_parallel: str = "ddp"
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    schedule: str = "1f1b"
    micro_batches: int = 1
    recompute: str = "none"
    precision: str = "fp32"
    compile: bool = False

    @classmethod
    def of(cls, settings: LayoutSettings) -> Layout:
        """Return the layout that the options of a command describe."""
        return cls(
            settings.data_parallel, settings.tensor_parallel, settings.pipeline_parallel,
            settings.context_parallel, settings.pipeline_schedule, settings.micro_batches,
            getattr(settings, "recompute", "none"), getattr(settings, "precision", None) or "fp32",
            getattr(settings, "compile", False),
        )

    @property
    def axes(self) -> dict[str, int]:
        """Name of each axis of the mesh -> number of ranks; `REST` stands for all that remain.

        Tensor ranks communicate most, so their axis is the last: their numbers are consecutive.
        """
        return {
            "pipeline": self.pipeline, "data": REST, "context": self.context, "tensor": self.tensor
        }

    @property
    def half(self) -> torch.dtype | None:
        """The type of autocast and FSDP for matrix products: a 16-bit type, or None for fp32."""
        return HALF.get(self.precision)

    @property
    def stages(self) -> int:
        """The number of stages of the pipeline."""
        return self.pipeline * (STAGES_PER_RANK if self.schedule == "interleaved" else 1) \
            if self.pipeline > 1 else 1

    @property
    def overlaps(self) -> bool:
        """Whether DistributedDataParallel sends gradients during the backward pass."""
        return self.data_parallel in ("ddp", "zero1") and self.pipeline == self.tensor == 1

    @property
    def divides_weights(self) -> bool:
        """Whether FSDP (`fully_shard`) divides weights and gradients over the replicas."""
        return self.data_parallel in ("zero2", "fsdp")

    def blocks(self, layers: int, rank: int) -> Iterator[range]:
        """Yield the numbers of the blocks of each stage on `rank` of the pipeline."""
        each = layers // self.stages
        for stage in range(rank, self.stages, self.pipeline):
            yield range(stage * each, (stage + 1) * each)

    def data_ranks(self, ranks: int) -> int:
        """Return how many of `ranks` ranks get different sequences."""
        return ranks // (self.tensor * self.pipeline * self.context)

    def check(self, shape: Shape, ranks: int, sequence: int, batch: int) -> None:
        """Refuse a layout that cannot divide the decoder or the batch.

        Args:
            shape: shape of the decoder.
            ranks: number of ranks.
            sequence: tokens of a sequence.
            batch: sequences of a step on all ranks.

        Raises:
            ArgumentError: something is not divisible; the message names both numbers.
        """
        self._check_divisions(shape, ranks, sequence, batch)
        if sequence > shape.positions:
            raise ArgumentError(
                f"--sequence {sequence}: the network has {shape.positions} positions; use at most "
                "as many tokens",
                code="layout-impossible",
            )
        if self.precision == "fp8":
            self._check_fp8(shape, ranks, sequence, batch)
        self._check_combinations()

    def _check_divisions(self, shape: Shape, ranks: int, sequence: int, batch: int) -> None:
        data = self.data_ranks(ranks)
        for many, what, parts, option in (
            (shape.heads, "attention heads", self.tensor, "--tensor-parallel"),
            (shape.key_heads, "heads of keys and values", self.tensor, "--tensor-parallel"),
            (shape.hidden, "hidden units", self.tensor, "--tensor-parallel"),
            (shape.layers, "layers", self.stages, "--pipeline-parallel"),
            (sequence, "tokens of a sequence", self.context * self.tensor,
             "--context-parallel and --tensor-parallel"),
            (batch, "sequences of a step", data * self.micro_batches,
             "data ranks and --micro-batches"),
        ):
            if many % parts:
                raise ArgumentError(
                    f"{many} {what} cannot be divided by {parts} ({option}): choose a divisor of "
                    f"{many}",
                    code="layout-impossible",
                )

    def _check_combinations(self) -> None:
        if self.data_parallel == "zero1" and self.tensor > 1:
            raise ArgumentError(
                "--data-parallel zero1 cannot divide weights that --tensor-parallel divides: "
                "PyTorch's ZeroRedundancyOptimizer does not support them; use zero2 or fsdp",
                code="layout-impossible",
            )
        if self.compile and self.recompute == "selective":
            raise ArgumentError(
                "--recompute selective cannot choose operations inside of the compiled blocks of "
                "--compile (PyTorch 2.13): use --recompute full or none",
                code="layout-impossible",
            )
        if self.pipeline > 1 and not hasattr(Schedule1F1B, "eval"):
            raise ArgumentError(
                f"--pipeline-parallel {self.pipeline}: the pipelines of PyTorch "
                f"{torch.__version__} cannot evaluate; use an image with a newer PyTorch, such as "
                "language-model-torch-cuda13, or another kind of parallelism",
                code="layout-impossible",
            )
        if self.pipeline > 1 and self.micro_batches % self.pipeline:
            raise ArgumentError(
                f"--micro-batches {self.micro_batches}: a pipeline of {self.pipeline} ranks needs "
                "a multiple of this number, so that all of its stages have work",
                code="layout-impossible",
            )

    def _check_fp8(self, shape: Shape, ranks: int, sequence: int, batch: int) -> None:
        if self.tensor > 1:
            raise ArgumentError(
                "--precision fp8 cannot divide matrices (--tensor-parallel): use bf16, or another "
                "kind of parallelism",
                code="layout-impossible",
            )
        tokens = batch // (self.data_ranks(ranks) * self.micro_batches) * sequence // self.context
        for many, what in (
            (shape.width, "the width of the network"), (shape.hidden, "its hidden units"),
            (shape.key_heads * shape.head_width, "its keys"), (tokens, "tokens of a micro-batch"),
        ):
            if many % float8.MULTIPLE:
                raise ArgumentError(
                    f"--precision fp8: {what}, {many}, must be a multiple of {float8.MULTIPLE}",
                    code="layout-impossible",
                )
