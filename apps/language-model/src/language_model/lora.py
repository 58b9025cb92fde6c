"""Low-rank adaptation, LoRA: Hu et al., arXiv:2106.09685, section 4.1.

The matrices W (outputs, inputs) do not change. A product of two trained matrices is added to each:
W + (alpha / rank) B A, with A (rank, inputs) and B (outputs, rank). B is 0 at the start, so that
the first outputs are equal to the outputs of the original network. All matrices of the blocks are
adapted, which Dettmers et al., arXiv:2305.14314, section 4, found necessary for the results of full
fine-tuning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.nn import functional

from language_model.huggingface import Readable
from language_model.settings import TrainSettings
from language_model.shapes import Shape
from trainkit.pieces import Shape as Size
from trainkit.statefile import Array

A, B = "lora_a", "lora_b"


@dataclass(frozen=True)
class Lora:
    """The settings of a low-rank adaptation.

    Attributes:
        rank: number of rows of A and of columns of B.
        alpha: the product B A is multiplied by alpha / rank.
    """

    rank: int
    alpha: float

    @classmethod
    def of(cls, settings: TrainSettings) -> Lora | None:
        """Return the adaptation that the options describe, or None if there is none."""
        rank = settings.lora_rank
        return cls(rank, settings.lora_alpha or rank) if rank else None

    @property
    def scale(self) -> float:
        """The factor of each product B A: alpha / rank."""
        return self.alpha / self.rank

    def parameters(self, shape: Shape) -> int:
        """Return the number of parameters that the adaptation of a decoder trains."""
        width, hidden, keys = shape.width, shape.hidden, shape.key_heads * shape.head_width
        attention = 2 * (width + width) + 2 * (width + keys)
        matrices = 2 if shape.family == "gpt2" else 3
        return shape.layers * self.rank * (attention + matrices * (width + hidden))


def adapt(stage: nn.Module, blocks: nn.Module, lora: Lora) -> None:
    """Freeze all weights of a stage, and add the matrices A and B to each linear layer in `blocks`.

    A and B are trained; the layer adds their scaled product, applied to its input, to its output.
    """
    stage.requires_grad_(False)
    for layer in blocks.modules():
        if isinstance(layer, nn.Linear):
            outputs, inputs = layer.weight.shape
            layer.register_parameter(A, _part(layer.weight, (lora.rank, inputs), 1))
            layer.register_parameter(B, _part(layer.weight, (outputs, lora.rank), 0))
            # First, so that it adds to the result before tensor parallelism redistributes it.
            layer.register_forward_hook(_Sum(lora.scale), prepend=True)


class _Sum:
    """A forward hook that adds the scaled product B A x to the result of a layer."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> Tensor:
        narrow = functional.linear(inputs[0], getattr(layer, A))
        return result + self._scale * functional.linear(narrow, getattr(layer, B))


def _part(weight: Tensor, size: Size, dimension: int) -> nn.Parameter:
    """Return a new factor A or B: a parameter of shape `size`, without values.

    It is divided over the tensor ranks if `weight` is divided along `dimension`.
    """
    part = torch.empty(size, device=weight.device)
    if not isinstance(weight, DTensor):
        return nn.Parameter(part)
    placements = [one if one.is_shard(dimension) else Replicate() for one in weight.placements]
    return nn.Parameter(distribute_tensor(part, weight.device_mesh, placements))


@dataclass(frozen=True)
class Merged:
    """A weight to which the scaled product B A of its adaptation is added; see `Readable`.

    Attributes:
        weight: the weight (outputs, inputs).
        a: the factor A.
        b: the factor B.
        scale: the factor of the product.
    """

    weight: Readable
    a: Readable
    b: Readable
    scale: float

    @property
    def shape(self) -> Size:
        """The shape of the weight."""
        return self.weight.shape

    @property
    def dtype(self) -> str:
        """The name of the type of the weight."""
        return self.weight.dtype

    def read(self, offsets: Size | None = None, shape: Size | None = None) -> Array:
        """Return the part of the adapted weight that begins at `offsets` and has `shape`.

        Without arguments, return the whole weight.
        """
        (row, column), (rows, columns) = offsets or (0, 0), self.shape if shape is None else shape
        rank = self.a.shape[0]
        a, b = self.a.read((0, column), (rank, columns)), self.b.read((row, 0), (rows, rank))
        product: Array = np.asarray(b) @ np.asarray(a)
        return np.asarray(self.weight.read((row, column), (rows, columns))) + self.scale * product


def merged(weights: Mapping[str, Readable], lora: Mapping[str, Any] | None) -> dict[str, Readable]:
    """Return the weights of a checkpoint, with the trained products added to the adapted weights.

    Args:
        weights: name -> weight in the checkpoint.
        lora: the settings of the adaptation in the checkpoint; None if no weights were
            adapted.
    """
    if lora is None:
        return dict(weights)
    scale = Lora(**lora).scale
    return {
        name: Merged(weight, weights[_beside(name, A)], weights[_beside(name, B)], scale)
        if _beside(name, A) in weights else weight
        for name, weight in weights.items() if not name.endswith((A, B))
    }


def _beside(name: str, part: str) -> str:
    """Return the name of the factor `part` (A or B) that belongs to the weight `name`."""
    return f"{name.removesuffix('weight')}{part}"
