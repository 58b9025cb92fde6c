"""Measure the language model with random tokens: tokens per second, and share of peak (MFU)."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from gpuparts import Report, ceiling
from gpuparts.timing import COMPILING, no_compiler, peak_gib, release, seconds_of, strategy
from language_model import method
from language_model.batch import Batch
from language_model.layout import Layout
from language_model.shapes import SHAPES
from language_model.steps import Network

SIZES = {"cuda": ("gpt2-350m", 1024, (8, 16, 32)), "cpu": ("gpt2-test", 32, (2,))}
"""Device -> name of the network, tokens per sequence, numbers of sequences per step."""
PEAKS = {"H100": 989.4e12, "H200": 989.4e12, "A100": 312e12}
"""Word in a device's name -> peak in FLOP/s: dense bf16, SXM modules.

The source is NVIDIA's data sheets of H100, H200 and A100. The MFU, defined in the paper on PaLM
(arXiv:2204.02311), is the share of this peak that a training reaches.
"""


def measure(device: str, until: float, report: Report) -> None:
    """Report the rate in tokens per second for each batch size, eager and compiled."""
    name, length, batches = SIZES[device]
    top, _ = ceiling.best("bf16", device)
    work = method.operations_per_token(SHAPES[name], length)
    title = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    is_sxm = not any(word in title for word in ("PCIe", "NVL"))
    peak = next((one for word, one in PEAKS.items() if is_sxm and word in title), None)
    reason = no_compiler() if device == "cuda" else None
    if reason is not None:
        report("torch.compile", f"not measured: {reason}")
    forms = (False, True) if device == "cuda" and reason is None else (False,)
    for compiled in forms:
        for number, batch in enumerate(batches):
            late = time.monotonic() + (COMPILING if compiled else 0) > until
            if late and (number or compiled):
                continue
            label = f"{name}, {'compiled' if compiled else 'eager'}, {batch} x {length} tokens"
            release(device)
            try:
                step, _ = app_step(device, name, length, batch, compiled=compiled)
                rate = batch * length / seconds_of(step, device)
            except torch.OutOfMemoryError:
                report(label, "out of memory")
                break
            mfu = {} if peak is None else {"mfu_of_data_sheet": rate * work / peak}
            if device == "cuda":  # on a CPU, the products are too small for a ceiling
                mfu["share_of_ceiling"] = rate * work / top
            report(label, rate, "tokens/s", peak_gib=peak_gib(device), **mfu)


def app_step(
    device: str, name: str, length: int, batch: int, *, compiled: bool = False,
    precision: str = "bf16",
) -> tuple[Callable[[], torch.Tensor], Network]:
    """Return a pair: a function that makes one training step of the app, and the trained network.

    The function returns the sum of the losses of its step.
    """
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    alone = strategy(device)
    network = Network(SHAPES[name], Layout(precision=precision, compile=compiled), alone, 17)
    optimizer = method.make_optimizer(network, method.AdamW(1e-3))
    draw = torch.Generator().manual_seed(17)
    text = torch.randint(SHAPES[name].vocabulary, (batch, length + 1), generator=draw)
    positions = torch.arange(length).expand(batch, -1).contiguous()
    one = Batch(text[:, :-1].contiguous(), text[:, 1:].contiguous(), positions)
    one = one.to(alone.device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = network.gradients(one, 1 / (batch * length))
        optimizer.step()
        return loss

    return step, network
