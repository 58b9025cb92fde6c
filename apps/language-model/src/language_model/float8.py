"""Matrix products of the blocks in fp8: Micikevicius et al., "FP8 Formats for Deep Learning".

arXiv:2209.05433, sections 3 and 4: weights and activations have 3 bits of mantissa (E4M3),
gradients 2 (E5M2). Each operand is scaled so that its largest value becomes the largest value of
its format; the sums of a product are accumulated with more bits. GPUs compute such products from
compute capability 8.9 on (`trainkit.torch.precision.has_fp8`). An evaluation computes in bf16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

FORWARD, BACKWARD = torch.float8_e4m3fn, torch.float8_e5m2
MULTIPLE = 16
"""Each dimension of a matrix in an fp8 product must be a multiple of this number (cuBLAS)."""
SMALLEST = 1e-12
"""Lower limit of the largest value of an operand, so that the scale of zeros is finite."""


def convert(blocks: nn.Module) -> None:
    """Make all linear layers below `blocks` compute in fp8 while they are trained."""
    for layer in blocks.modules():
        if isinstance(layer, nn.Linear):
            layer.__class__ = Float8Linear


class Float8Linear(nn.Linear):
    """A linear layer that computes its forward and backward matrix products in fp8."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer in bf16, (..., outputs), for an input (..., inputs)."""
        if not self.training:
            return super().forward(x)
        rows = x.to(torch.bfloat16).flatten(0, -2)
        # Autocast would change the products, but not those of the backward pass.
        with torch.autocast(x.device.type, enabled=False):
            # PyTorch does not annotate `apply`.
            found: Tensor = _Product.apply(rows, self.weight)  # type: ignore[no-untyped-call]
        result = found.reshape(*x.shape[:-1], -1)
        return result if self.bias is None else result + self.bias.to(result.dtype)


class _Product(torch.autograd.Function):
    """The product x W^T in fp8, for an input x (rows, inputs) and a weight W (outputs, inputs)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        # Only the gradient of the weight needs the input.
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
        return product(x, weight.t(), FORWARD, torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        [gradient], (x, weight) = gradients, ctx.saved_tensors
        of_input = product(gradient, weight, BACKWARD, torch.bfloat16)
        of_weight = None
        if x is not None:
            of_weight = product(gradient.t(), x, BACKWARD, weight.dtype)
        return of_input, of_weight


def product(a: Tensor, b: Tensor, kind: torch.dtype, result: torch.dtype) -> Tensor:
    """Return the matrix product of a (rows, inner) and b (inner, columns) in fp8.

    Args:
        a: first operand.
        b: second operand, which is always E4M3.
        kind: format of `a`.
        result: type of the product.
    """
    (first, of_first), (second, of_second) = scaled(a, kind), scaled(b.t(), FORWARD)
    # The products read rows of the first operand and columns of the second one.
    return torch._scaled_mm(
        first, second.t(), scale_a=of_first, scale_b=of_second, out_dtype=result
    )


def scaled(values: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return `values` in fp8, contiguous in memory, and the factor that restores them, a scalar."""
    most = values.detach().abs().amax().float().clamp(min=SMALLEST)
    factor = torch.finfo(kind).max / most
    return (values.float() * factor).to(kind).contiguous(), 1 / factor
