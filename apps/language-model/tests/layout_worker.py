"""Train a small decoder in several layouts, one after the other, in ranks that torchrun starts.

    torchrun --nproc-per-node 4 layout_worker.py JOBS.json RESULTS.json

Each job is a dict of arguments of `run`. All jobs use one process group, because the start of ranks
takes longer than a job.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import Optimizer

from language_model import method
from language_model.batch import Batch
from language_model.layout import Layout
from language_model.lora import Lora
from language_model.shapes import SHAPES
from language_model.state import weights
from language_model.steps import Network
from trainkit import checkpoint, parts, pieces
from trainkit.checkpoint import Checkpoints
from trainkit.torch import precision, sharded
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy

SEQUENCE, BATCH, RATE = 32, 8, 3e-3
Result = dict[str, Any]


def global_batch(step: int, documents: bool) -> Batch:
    """Return a batch whose tokens depend on `step` only; a few targets are padding."""
    generator = torch.Generator().manual_seed(step)
    tokens = torch.randint(0, 257, (BATCH, SEQUENCE + 1), generator=generator)
    targets = tokens[:, 1:].clone()
    targets[0, :3] = -100
    positions = torch.arange(SEQUENCE).expand(BATCH, SEQUENCE).contiguous()
    own = (positions >= SEQUENCE // 3).long() if documents else None
    return Batch(tokens[:, :-1].contiguous(), targets, positions, own)


def run(
    strategy: TorchStrategy, layout: Layout, *, shape: str = "gpt2-test", documents: bool = False,
    first: int = 0, steps: int = 20, load: str | None = None, save: str | None = None, at: int = 0,
    lora: int = 0,
) -> Result:
    """Train from step `first` to step `steps`.

    Args:
        strategy: the strategy that connects the ranks.
        layout: how the work is divided.
        shape: name of the shape.
        documents: whether tokens see only tokens of their own document.
        first: number of the first step.
        steps: number of the step at which the training ends.
        load: checkpoint to begin with.
        save: folder for a checkpoint, which is written in the background.
        at: number of steps after which the checkpoint is written.
        lora: rank of a low-rank adaptation; 0: all weights are trained.

    Returns:
        losses, gradient norms, the loss of the last batch after the training, the bytes of weights,
        gradients and optimizer state on each rank, and a digest of the weights.
    """
    torch.manual_seed(1)
    network = Network(
        SHAPES[shape], layout, strategy, 17, lora=Lora(lora, lora) if lora else None
    )
    optimizer = method.make_optimizer(network, method.AdamW(RATE))
    found = _parts(network, optimizer)
    writer = Checkpoints(Path(save or "unused"), 1, strategy)
    if load is not None:
        state = strategy.share(checkpoint.load(Path(load)) if strategy.is_main else None)
        assert state is not None
        parts.restore(found, state["parts"])
    losses, norms = [], []
    for step in range(first, steps):
        batch = global_batch(step, documents)
        count = int((batch.targets >= 0).sum())
        index, number = network.part
        own = batch.parts(number)[index]
        optimizer.zero_grad()
        loss = network.gradients(own, network.replicas / count)
        norm = sharded.gradient_norm(network.parameters, network.places, strategy)
        sharded.scale_gradients(network.parameters, method.clipping(norm, 1.0))
        optimizer.step()
        losses.append(strategy.start_sum(loss[None]).result()[0] / count)
        norms.append(norm.item())
        if save is not None and step + 1 == at:
            rest, own_pieces = pieces.split(parts.snapshot(found))
            writer.start(at, {"parts": rest}, own_pieces)
    last = strategy.start_sum(network.loss(own)[None]).result()[0] / count
    writer.wait()
    digest = sharded.digest(network.parameters, network.places)
    assert strategy.agree(digest)
    return {
        "losses": losses, "norms": norms, "last": last,
        "bytes": strategy.gather(_bytes(network, optimizer)), "digest": strategy.gather(digest),
    }


def _parts(network: Network, optimizer: Optimizer) -> dict[str, Any]:
    own = method.updated(optimizer, network)
    state = sharded.ShardedOptimizer(
        lambda: method.states(optimizer), own, network.places, network.strategy
    )
    return {"network": weights(network), "optimizer": state}


def _bytes(network: Network, optimizer: Optimizer) -> int:
    tensors: list[Tensor] = list(network.parameters.values())
    tensors += [p.grad for p in tensors if p.grad is not None]
    for state in method.states(optimizer).values():
        tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return sum(sharded.local(tensor).numel() * tensor.element_size() for tensor in tensors)


def main(jobs: str, results: str) -> None:
    """Train with each entry of the file `jobs`, and write their results to the file `results`."""
    found: list[Result] = []
    connect = dist.init_process_group
    for job in json.loads(Path(jobs).read_text()):
        layout = Layout(**job.pop("layout"))
        strategy = start("mesh", device="cpu", axes=layout.axes)
        dist.init_process_group = lambda *_, **__: None
        precision.prepare("fp32", strategy.device, seed=1, deterministic=False)
        with strategy.explained():
            found.append(run(strategy, layout, **job))
    if strategy.is_main:
        Path(results).write_text(json.dumps(found))
    dist.init_process_group = connect
    strategy.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
