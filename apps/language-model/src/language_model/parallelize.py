"""All kinds of parallelism of the app, which divide the work over one mesh of ranks.

The mesh has the axes pipeline, data, context and tensor. Ranks that differ on

- tensor hold parts of each weight matrix, and parts of the sequence between the products:
  Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3, and Korthikanti et al.,
  arXiv:2205.05198, section 4.2;
- context hold parts of each sequence, and gather the keys and values of the others: "The Llama 3
  Herd of Models", arXiv:2407.21783, section 3.3.2;
- data hold different sequences: Li et al., "PyTorch Distributed", arXiv:2006.15704; with parts of
  the optimizer state, the gradients or the weights: Rajbhandari et al., "ZeRO", arXiv:1910.02054,
  section 5, and Zhao et al., "PyTorch FSDP", arXiv:2304.11277;
- pipeline hold different blocks: Huang et al., "GPipe", arXiv:1811.06965, and Narayanan et al.,
  arXiv:2104.04473, sections 2.2.1 (1F1B) and 2.2.2 (interleaved).

Ranks that differ on data or context only are replicas: their gradients are averaged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from language_model import float8
from language_model.layout import Layout
from language_model.lora import Lora, adapt
from language_model.model import Decoder
from language_model.recompute import recompute
from language_model.shapes import Shape
from trainkit.torch.mesh import Mesh

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B}


def stages(
    shape: Shape, layout: Layout, strategy: Any, dropout: float, lora: Lora | None
) -> list[Decoder]:
    """Return the stages of the decoder on this rank, divided over the mesh, without values.

    Without a pipeline, the only stage is the whole decoder. The weights are uninitialized. The
    arguments are described in `steps.Network`.
    """
    rank = strategy.mesh.get_local_rank("pipeline") if isinstance(strategy, Mesh) else 0
    found = []
    for blocks in layout.blocks(shape.layers, rank):
        with torch.device("meta"):
            stage = Decoder(shape, blocks, dropout)
        if layout.tensor > 1:
            split_tensors(stage, strategy.mesh["tensor"])
        if layout.context > 1:
            split_context(stage, strategy.mesh["context"])
        if lora is not None:
            adapt(stage, stage.blocks, lora)
        if layout.precision == "fp8":
            float8.convert(stage.blocks)
        recompute(stage, layout.recompute)
        if layout.compile:
            for block in stage.blocks.values():
                block.compile()
        if layout.data_parallel in ("zero2", "fsdp") and isinstance(strategy, Mesh):
            split_weights(stage, replicas(strategy), layout)
        stage.to_empty(device=strategy.device)
        stage.tie()
        found.append(stage)
    return found


def replicas(strategy: Mesh) -> DeviceMesh:
    """Return the mesh of the ranks whose gradients are averaged, along data and context."""
    return strategy.mesh["data", "context"]._flatten("replicas")


def split_weights(stage: Decoder, mesh: DeviceMesh, layout: Layout) -> None:
    """Divide weights, gradients and optimizer state over the replicas (FSDP; ZeRO-3).

    Each block is gathered before its pass and released after it. For ZeRO-2, it stays gathered from
    the forward to the backward pass (`reshard_after_forward=False`), so that only gradients and
    optimizer state are divided during the step. See the documentation of `fully_shard`, and Zhao et
    al., arXiv:2304.11277, section 3.2.1 on SHARD_GRAD_OP.
    """
    policy = MixedPrecisionPolicy(layout.half, torch.float32, cast_forward_inputs=False)
    for module in (*stage.blocks.values(), stage):
        fully_shard(module, mesh=mesh, mp_policy=policy,
                    reshard_after_forward=layout.data_parallel == "fsdp")


def split_tensors(stage: Decoder, mesh: DeviceMesh) -> None:
    """Divide the weight matrices and the sequence over the tensor ranks.

    In an attention or feed-forward layer, the columns of the first matrices and the rows of the
    last matrix are divided, so that each rank has some heads or some hidden units. Outside these
    layers, each rank has a part of the sequence: a layer gathers its input along the sequence, and
    scatters the sums of its output along the sequence.
    """
    columns, rows = ColwiseParallel, partial(RowwiseParallel, output_layouts=Shard(1))
    ends = {
        "embedding": rows(input_layouts=Replicate()),
        "positions": rows(input_layouts=Replicate()),
        "norm": SequenceParallel(),
        # The logits stay divided; the loss is computed from them by `loss_parallel` of PyTorch.
        "head": columns(input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False),
    }
    inside = {
        "attention_norm": SequenceParallel(),
        "attention": PrepareModuleInput(
            input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
        ),
        "attention.query": columns(), "attention.key": columns(), "attention.value": columns(),
        "attention.output": rows(),
        "feed_forward_norm": SequenceParallel(),
        "feed_forward": PrepareModuleInput(
            input_layouts=Shard(1), desired_input_layouts=Replicate()
        ),
        "feed_forward.up": columns(), "feed_forward.gate": columns(), "feed_forward.down": rows(),
    }
    for module, plan in ((stage, ends), *((block, inside) for block in stage.blocks.values())):
        here = {name for name, _ in module.named_modules()}  # not each stage has both ends
        parallelize_module(module, mesh, {name: plan[name] for name in plan if name in here})
    stage.tie()


def split_context(stage: Decoder, mesh: DeviceMesh) -> None:
    """Divide each sequence over the context ranks.

    Each rank has the queries of consecutive tokens. The attention gathers the keys and values of
    all tokens, and masks the tokens after each query. Ring attention of PyTorch
    (`context_parallel`) needs kernels that exist on GPUs only (PyTorch 2.13).
    """
    stage.gather = partial(gather, mesh=mesh)


def gather(part: Tensor, mesh: DeviceMesh) -> Tensor:
    """Return a whole sequence, joined from the parts (batch, heads, tokens, width) of all ranks.

    The gradient of a part is the sum of the gradients of all ranks.
    """
    whole = DTensor.from_local(part, mesh, [Shard(2)]).redistribute(placements=[Replicate()])
    return whole.to_local(grad_placements=[Partial()])


def pipeline(
    modules: list[nn.Module], layout: Layout, strategy: Mesh, loss: Callable[..., Tensor]
) -> Any:
    """Return the schedule of a pipeline, whose `step` runs all passes of a batch.

    Args:
        modules: the stages of this rank, in order.
        layout: how the work is divided.
        strategy: the strategy that connects the ranks.
        loss: function of the logits and targets of a micro-batch.
    """
    group, rank = strategy.mesh.get_group("pipeline"), strategy.mesh.get_local_rank("pipeline")
    parts = [
        PipelineStage(module, rank + number * layout.pipeline, layout.stages, strategy.device,
                      group=group)
        for number, module in enumerate(modules)
    ]
    return SCHEDULES[layout.schedule](
        parts if layout.schedule == "interleaved" else parts[0], layout.micro_batches, loss,
        scale_grads=False,
    )
