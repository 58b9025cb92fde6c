"""The command `estimate`: compute the memory and time that a training will need."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from language_model import measure, memory, states
from language_model.activations import FULL
from language_model.job import Job
from language_model.memory import Memory
from language_model.method import operations_per_token
from language_model.settings import EstimateSettings
from language_model.states import GIB, gib

LINES = {
    "weights": "the weights, fp32",
    "gradients": "the gradients of the trained weights, fp32",
    "optimizer": "the two moments of Adam of the trained weights, fp32",
    "copies": "weights in the type of the matrix products, which autocast makes",
    "gathered": "weights of other ranks that FSDP or ZeRO-2 holds for a pass",
    "scattered": "gradients of a block before they are divided",
    "activations": "values that micro-batches in flight keep for their backward passes",
    "waiting": "probabilities that micro-batches in flight keep",
    "loss": "arrays of the size of the logits, during the loss",
    "pipeline": "buffers for hidden states and gradients of other stages",
    "working": "values in between of the backward pass of a block",
}
"""Field of `Memory` -> the text that describes it in the table."""


def main(settings: EstimateSettings) -> None:
    """Print the estimated memory of a rank and, on request, the estimated time of a step.

    With --measure, some steps are made, and their memory, traffic and time are printed, too.

    Raises:
        ArgumentError: the layout is impossible, or does not fit into --device-memory.
    """
    if settings.measure:
        measured = measure.run(settings)
        if measured is None:
            return  # another rank prints
        job, found = measured
    else:
        job, found = Job.of(settings, settings.ranks), None
    memories = memory.of_ranks(job)
    document = described(settings, job, memories) | ({"measured": found} if found else {})
    print(json.dumps(document) if settings.json else table(document, memories))
    sys.stdout.flush()
    if settings.device_memory is not None:
        states.refuse(
            max(one.peak for one in memories), settings.device_memory * GIB, "--device-memory"
        )


def described(
    settings: EstimateSettings, job: Job, memories: list[Memory]
) -> dict[str, Any]:
    """Return all estimates, as --json prints them; memory in bytes, time in seconds."""
    found: dict[str, Any] = {
        "model": settings.model, "parameters": job.shape.parameters,
        "inference_bytes": FULL * job.shape.parameters, "ranks": job.ranks,
        "sequence": job.sequence, "batch_size": job.batch,
        "memory": [
            dataclasses.asdict(one) | {"states": one.states, "peak": one.peak}
            for one in memories
        ],
    }
    if settings.peak_tflops is not None:
        rate = job.ranks * settings.peak_tflops * 1e12 * settings.utilization
        tokens = job.batch * job.sequence
        seconds = operations_per_token(job.shape, job.sequence) * tokens / rate
        found["seconds_per_step"] = seconds
        if settings.steps is not None:
            found["seconds"] = seconds * settings.steps
    return found


def table(document: dict[str, Any], memories: list[Memory]) -> str:
    """Return the estimates as a table for a terminal."""
    largest = max(memories, key=lambda one: one.peak)
    ranks = f"{document['ranks']} ranks, " if document["ranks"] > 1 else ""
    rows = [
        f"{document['model']}, {document['parameters']:,} parameters, {ranks}batch of "
        f"{document['batch_size']} x {document['sequence']} tokens",
        f"inference needs {gib(document['inference_bytes'])} for the weights in fp32",
        "", "memory of the rank that needs most:",
    ]
    rows += [
        f"  {name:<12}{gib(getattr(largest, name)):>12}  {text}"
        for name, text in LINES.items() if getattr(largest, name)
    ]
    rows.append(f"  {'peak':<12}{gib(largest.peak):>12}  {largest.moment}")
    if len(memories) > 1:
        peaks = ", ".join(gib(one.peak) for one in memories)
        rows.append(f"  peaks of the ranks of the pipeline: {peaks}")
    if "measured" in document:
        found = document["measured"]
        rows += [
            "", f"measured in two steps: peak {gib(max(found['peak']))}, "
            f"{max(found['sent']) / 1e6:,.3f} MB sent per step by the rank that sends most, "
            f"{found['seconds']:.3f} s per step",
        ]
    if "seconds_per_step" in document:
        rows += ["", f"time of a step at this utilization: {document['seconds_per_step']:.3f} s"]
    if "seconds" in document:
        rows.append(f"time of all steps: {document['seconds'] / 3600:.2f} h")
    return "\n".join(rows)
