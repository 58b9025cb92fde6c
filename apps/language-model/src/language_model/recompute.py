"""Activation checkpointing: blocks keep few values, and the backward pass recomputes others."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from language_model.model import Decoder

PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::_scaled_mm")


def recompute(stage: Decoder, kind: str) -> None:
    """Keep the inputs of each block only, and compute the rest again in the backward pass.

    Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174. "selective" also
    keeps the results of attention and of every second matrix product, as torchtitan does (Liang et
    al., arXiv:2410.06511), following Korthikanti et al., arXiv:2205.05198, section 5.
    """
    if kind == "full":
        stage.run = partial(checkpoint, use_reentrant=False)
    if kind == "selective":
        stage.run = partial(checkpoint, use_reentrant=False, context_fn=selection)


def selection() -> tuple[Any, Any]:
    """Return two contexts for `checkpoint`: for the forward pass of a block and recomputation.

    They keep the results that `recompute` describes for "selective".
    """
    products = Counter[bool]()

    def policy(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        kept = "scaled_dot_product" in operation.name()
        if operation.name() in PRODUCTS:
            products[context.is_recompute] += 1
            kept = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    # PyTorch does not annotate this function.
    contexts: tuple[Any, Any] = create_selective_checkpoint_contexts(  # type: ignore[no-untyped-call]
        policy
    )
    return contexts
