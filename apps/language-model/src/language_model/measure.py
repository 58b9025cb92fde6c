"""Measurement of the memory, communication and time of a layout, in steps with random tokens."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.optim import Optimizer

from language_model import method
from language_model.batch import Batch
from language_model.footprint import Footprint
from language_model.job import Job
from language_model.layout import Layout
from language_model.settings import EstimateSettings
from language_model.steps import Network
from trainkit.torch import precision, sharded
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy

TIMED = 5
"""Number of timed steps. They do not count memory and traffic, because counting takes time."""


def run(settings: EstimateSettings) -> tuple[Job, dict[str, Any]] | None:
    """Measure the layout on the ranks that a launcher started.

    Returns:
        On rank 0, the `Job` that was measured and the result of `step_facts`; else None.
    """
    layout = Layout.of(settings)
    strategy = start(settings.strategy, device=settings.device, axes=layout.axes)
    with strategy.explained():
        precision.prepare(layout.precision, strategy.device, seed=1, deterministic=False)
        job = Job.of(settings, strategy.size)
        found = step_facts(job, strategy)
        strategy.close()
    return (job, found) if strategy.is_main else None


def step_facts(job: Job, strategy: TorchStrategy) -> dict[str, Any]:
    """Measure the memory, the communication and the time of a step.

    Returns:
        `peak`: peak memory of each rank in bytes; on a GPU, as PyTorch's allocator counts it.
        `states`: bytes of weights, gradients and optimizer state of each rank.
        `sent`: bytes that each rank sends in a step.
        `seconds`: mean time of a step, of the slowest rank.
    """
    with Footprint() as counts:
        network = Network(job.shape, job.layout, strategy, lora=job.lora)
        optimizer = method.make_optimizer(network, method.AdamW(1e-3))
        step(job, network, optimizer)  # Adam makes its moments
        counts.sent = 0.0
        step(job, network, optimizer)
    peak, bytes_ = counts.peak, counts.sent
    if strategy.device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(strategy.device)
    strategy.synchronize()
    began = time.perf_counter()
    for _ in range(TIMED):
        step(job, network, optimizer)
    strategy.synchronize()
    seconds = (time.perf_counter() - began) / TIMED
    return {
        "peak": strategy.gather(peak), "states": strategy.gather(states(network, optimizer)),
        "sent": strategy.gather(bytes_), "seconds": max(strategy.gather(seconds)),
    }


def step(job: Job, network: Network, optimizer: Optimizer) -> None:
    """Make one update with random tokens, as `train.py` does."""
    tokens = torch.randint(0, job.shape.vocabulary, (job.batch, job.sequence + 1))
    positions = torch.arange(job.sequence).expand(job.batch, -1).contiguous()
    documents = positions * 2 // job.sequence if job.masked else None
    index, number = network.part
    own = Batch(
        tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous(), positions, documents
    ).parts(number)[index]
    optimizer.zero_grad()
    network.gradients(own, network.replicas / tokens[:, 1:].numel())
    norm = sharded.gradient_norm(network.parameters, network.places, network.strategy)
    sharded.scale_gradients(network.parameters, method.clipping(norm, 1.0))
    optimizer.step()


def states(network: Network, optimizer: Optimizer) -> int:
    """Return the bytes of the weights, gradients and optimizer state of this rank."""
    tensors = list[torch.Tensor](network.parameters.values())
    tensors += [weight.grad for weight in tensors if weight.grad is not None]
    for values in method.states(optimizer).values():
        tensors += [value for value in values.values() if isinstance(value, torch.Tensor)]
    return sum(sharded.local(one).numel() * one.element_size() for one in tensors)
