"""The memory that a layout needs on each rank, computed by formula before anything is built.

States: a weight, its gradient and the two moments of Adam take 4 bytes each in fp32; Rajbhandari
et al., "ZeRO", arXiv:1910.02054, section 3.1, count them, and section 5 divides them. Activations:
`activations.py`. The number of micro-batches in flight: Narayanan et al., arXiv:2104.04473, section
2.2.

The peak is the largest sum of bytes at one of four moments of a step. The formulas describe PyTorch
2.13 on CPUs, where tests compare them with counted bytes. They exclude buffers inside an
operation or a library, such as NCCL's, and unused memory of an allocator.
"""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from language_model.activations import FULL, HALF, Activations
from language_model.job import Job
from language_model.layout import Layout
from language_model.lora import A, B, adapt
from language_model.model import Decoder
from trainkit.torch.strategy import BUCKET_BYTES

MOMENTS = 2 * FULL
"""Bytes of Adam's two moments of a weight."""
LOSS_ARRAYS = 3
"""Arrays of the size of the logits in fp32 that the backward pass of the loss has at once: the
log-probabilities, and the gradients of `log_softmax` and `nll_loss`, of which `cross_entropy`
consists. With tensor parallelism, `loss_parallel` has one more."""
Size = tuple[int, ...]


@dataclass(frozen=True)
class Memory:
    """The memory of a rank, in bytes.

    Attributes:
        weights: the weights, in fp32.
        gradients: the gradients of the trained weights, in fp32.
        optimizer: Adam's two moments of the trained weights.
        copies: copies of the weights in the type of the matrix products.
        gathered: weights that FSDP or ZeRO-2 gathers.
        scattered: gradients of a block before FSDP or ZeRO-2 divides them.
        activations: the values that the micro-batches in flight keep for their backward passes.
        waiting: the log-probabilities that the loss keeps for the micro-batches in flight.
        loss: arrays of the size of the logits that the loss of a micro-batch makes.
        pipeline: buffers in which a stage receives hidden states and gradients.
        working: the temporary values of the backward pass of a block.
        moments: name of a point of time in a step -> the bytes of the values that exist then.
    """

    weights: int
    gradients: int
    optimizer: int
    copies: int
    gathered: int
    scattered: int
    activations: int
    waiting: int
    loss: int
    pipeline: int
    working: int
    moments: Mapping[str, int] = field(default_factory=dict)

    @property
    def states(self) -> int:
        """The bytes of weights, gradients and optimizer state, which do not depend on the batch."""
        return self.weights + self.gradients + self.optimizer

    @property
    def peak(self) -> int:
        """The peak memory of the rank in a step, in bytes: the largest value in `moments`."""
        return max(self.moments.values())

    @property
    def moment(self) -> str:
        """The name of the moment at which the memory has its peak."""
        return max(self.moments, key=lambda name: self.moments[name])


def of_ranks(job: Job) -> list[Memory]:
    """Return the memory of one rank at each coordinate of the pipeline axis of the mesh.

    Without a pipeline, the list has one entry, which holds for all ranks.
    """
    return [_of_rank(job, rank) for rank in range(job.layout.pipeline)]


def _of_rank(job: Job, rank: int) -> Memory:
    layout, tokens = job.layout, job.tokens
    kept = Activations(
        job.shape, layout, job.sequence, job.masked, adapted=job.lora is not None
    )
    stages = [Stage(job, blocks) for blocks in layout.blocks(job.shape.layers, rank)]
    flights = in_flight(layout, rank)
    trained = [size for stage in stages for size in stage.trained]
    optimizer = (
        _largest_part(trained, job.replicas) if layout.data_parallel == "zero1" else sum(trained)
    )
    last = stages[-1].is_last
    memory = Memory(
        weights=FULL * sum(sum(stage.own.values()) for stage in stages),
        gradients=FULL * sum(trained), optimizer=MOMENTS * optimizer,
        copies=sum(stage.copies for stage in stages),
        gathered=max(stage.gathered for stage in stages),
        scattered=max(stage.scattered for stage in stages),
        activations=round(tokens * sum(
            number * stage.activations(kept)
            for stage, number in zip(stages, flights, strict=True)
        )),
        # In the loss of a micro-batch, those before it have kept their probabilities.
        waiting=round(tokens * (flights[-1] - 1) * kept.probabilities) if last else 0,
        loss=round(tokens * kept.probabilities * (LOSS_ARRAYS + (layout.tensor > 1)))
        if last else 0,
        pipeline=round(sum(stage.received for stage in stages) * layout.micro_batches * tokens
                       * kept.boundary),
        working=round(tokens * kept.working),
    )
    first = max(stages, key=lambda stage: stage.number)
    freed = tokens * ((first.number - 1) * kept.kept + (kept.head if first.is_last else 0))
    return dataclasses.replace(
        memory, moments=_moments(job, memory, sum(flights) < layout.micro_batches * len(stages),
                                 round(freed))
    )


def _moments(job: Job, memory: Memory, steady: bool, freed: int) -> dict[str, int]:
    """Return the bytes that exist at each of four moments of a step, by the name of the moment.

    Args:
        job: description of the training.
        memory: the memory of the rank.
        steady: whether the rank processes more micro-batches than it keeps in flight. If so,
            gradients of earlier ones exist when the number in flight is largest.
        freed: bytes of activations that are freed when a backward pass reaches its last block.
    """
    layout = job.layout
    # DistributedDataParallel keeps its buckets, which are the gradients.
    buckets = layout.overlaps and job.ranks > 1
    gradients = memory.gradients
    if layout.divides_weights and layout.pipeline > 1:
        gradients *= job.replicas  # a pipeline divides them after the last micro-batch
    separate = not (layout.divides_weights or layout.overlaps or job.ranks == 1)
    base = memory.weights + memory.optimizer + memory.copies + memory.pipeline
    passes = base + memory.gathered + memory.activations + memory.waiting
    early = gradients if steady or buckets else 0
    return {
        "in the loss": passes + early + memory.loss,
        "at the start of the backward pass": passes + early + memory.working,
        "at the end of the backward pass":
            passes + gradients - freed + max(memory.working, memory.scattered),
        "in the update": base + gradients + (min(gradients, BUCKET_BYTES) if separate else 0),
    }


class Stage:
    """The weights of a pipeline stage, or of the whole decoder, and the memory that they need.

    Args:
        job: description of the training.
        blocks: numbers of the blocks of the stage.

    Attributes:
        number: number of blocks.
        own: name of a weight -> number of elements of its piece on a rank.
    """

    def __init__(self, job: Job, blocks: range) -> None:
        self.job, self.number = job, len(blocks)
        self.is_first, self.is_last = blocks[0] == 0, blocks[-1] == job.shape.layers - 1
        with torch.device("meta"):
            stage = Decoder(job.shape, blocks)
        if job.lora is not None:
            adapt(stage, stage.blocks, job.lora)
        self._tied = stage.embedding is not None and job.shape.tied
        tensor = job.layout.tensor
        self._divided = {
            name: divided(name, tuple(weight.shape), tensor)
            for name, weight in stage.named_parameters()
        }
        self._trained = {
            name for name, weight in stage.named_parameters() if weight.requires_grad
        }
        parts = job.replicas if job.layout.divides_weights else 1
        self.own = {
            name: math.prod((-(-size[0] // parts), *size[1:]))
            for name, size in self._divided.items()
        }

    @property
    def trained(self) -> list[int]:
        """The number of elements on a rank, for each trained weight."""
        return [self.own[name] for name in self._trained]

    def _elements(self, start: str, *, trained: bool = False) -> int:
        """Return the number of elements of the weights whose names begin with `start`.

        If `trained` is true, only trained weights count.
        """
        return sum(math.prod(size) for name, size in self._divided.items()
                   if name.startswith(start) and (name in self._trained or not trained))

    @property
    def copies(self) -> int:
        """The bytes of the copies that autocast makes of the matrices and biases of products."""
        if self.job.layout.half is None or self.job.layout.divides_weights:
            return 0
        table = ("embedding",) if self._tied and self.is_last else ()
        blocks = () if self.job.layout.precision == "fp8" else ("blocks",)
        matrices = sum(
            math.prod(size) for name, size in self._divided.items()
            if "norm" not in name and name.startswith((*blocks, "head", *table))
        )
        return HALF * matrices

    @property
    def gathered(self) -> int:
        """The largest number of bytes of weights that FSDP or ZeRO-2 holds gathered at once.

        ZeRO-2 holds all weights, and so does FSDP in a pipeline, between the micro-batches.
        Otherwise, FSDP holds the weights outside of the blocks, the weights of one block, and a
        buffer for the weights of the next block.
        """
        layout = self.job.layout
        if not layout.divides_weights or self.job.replicas == 1:
            return 0
        each = FULL if layout.half is None else HALF
        whole, blocks = self._elements(""), self._elements("blocks.")
        if layout.data_parallel == "zero2" or layout.pipeline > 1:
            return each * whole
        return each * (whole - blocks + min(2, self.number) * blocks // self.number)

    @property
    def scattered(self) -> int:
        """The bytes of two buffers for a block's gradients, before ranks divide the gradients.

        FSDP and ZeRO-2 divide gradients by a reduce-scatter. In a pipeline, the value is 0,
        because all gradients are divided together after the last micro-batch.
        """
        layout = self.job.layout
        if not layout.divides_weights or self.job.replicas == 1 or layout.pipeline > 1:
            return 0
        each = FULL if layout.half is None else HALF
        return (FULL + each) * self._elements("blocks.", trained=True) // self.number

    @property
    def received(self) -> int:
        """The number of tensors that the pipeline stage receives for a micro-batch.

        Each stage except the first receives hidden states; each stage except the last receives
        gradients.
        """
        return (not self.is_first) + (not self.is_last)

    def activations(self, kept: Activations) -> float:
        """Return the bytes of activations that the stage keeps per token of a micro-batch."""
        total = self.number * kept.kept
        if self.is_last:
            total += kept.head
        if self.job.layout.pipeline > 1:
            # The schedule keeps the result of the stage. What it received is in its buffers.
            total += kept.logits if self.is_last else kept.boundary
            total -= 0 if self.is_first else kept.boundary
        return total


def divided(name: str, size: Size, tensor: int) -> Size:
    """Return the shape of the largest piece of a weight on a tensor rank.

    `parallelize.split_tensors` divides the rows of the embeddings, of the head, and of the first
    matrices of an attention or feed-forward layer (query, key, value, up, gate). It divides the
    columns of the last matrices of such a layer (output, down). Each tensor rank holds whole norms
    and whole biases of last matrices. In a low-rank adaptation, it also holds the whole factor A of
    first matrices and the whole factor B of last matrices.
    """
    layer, _, kind = name.rpartition(".")
    columns = layer.endswith(("output", "down"))
    if "norm" in name or kind in (("bias", B) if columns else (A,)):
        return size
    if columns:
        return size[0], -(-size[1] // tensor)
    return -(-size[0] // tensor), *size[1:]


def in_flight(layout: Layout, rank: int) -> list[int]:
    """Return the largest number of micro-batches that each stage of a rank keeps at once.

    The numbers follow Narayanan et al., arXiv:2104.04473, sections 2.2.1 and 2.2.2. In the
    interleaved schedule, a rank keeps the forward passes that PyTorch makes before the first
    backward pass.
    """
    many, depth = layout.micro_batches, layout.pipeline
    if depth == 1:
        return [1]
    if layout.schedule == "gpipe":
        return [many]
    if layout.schedule == "1f1b":
        return [min(many, depth - rank)]
    stages = layout.stages // depth
    total = min(stages * many, 1 + 2 * (depth - 1 - rank) + (stages - 1) * depth)
    return list(_spread(total, stages, depth))


def _spread(total: int, stages: int, depth: int) -> Iterator[int]:
    """Yield for each stage of a rank the number of its passes among the rank's first `total` ones.

    All of these are forward passes. In an interleaved schedule, a rank of the pipeline has several
    stages, which take turns. In each turn, a stage makes the passes of `depth` micro-batches;
    `depth` is the number of ranks.
    """
    rounds, rest = divmod(total, stages * depth)
    for stage in range(stages):
        yield rounds * depth + min(depth, max(0, rest - stage * depth))


def _largest_part(sizes: list[int], parts: int) -> int:
    """Return the number of elements in the largest part of the weights that ZeRO-1 makes.

    `ZeroRedundancyOptimizer` assigns the weights in order of size, each to the smallest part so
    far.
    """
    totals = [0] * parts
    for size in sorted(sizes, reverse=True):
        heapq.heapreplace(totals, totals[0] + size)
    return max(totals)
