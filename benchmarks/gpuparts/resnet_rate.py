"""Compare the app's training step of ResNet-50, and faster variants of it, with a plain loop."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn import functional

from gpuparts import Report, ceiling
from gpuparts.timing import (
    COMPILING,
    OneStep,
    no_compiler,
    peak_gib,
    release,
    seconds_of,
    strategy,
)
from resnet_imagenet import method, model, train
from resnet_imagenet.benchmark import count_flops
from resnet_imagenet.settings import TrainSettings
from trainkit.zoo.measure import TRAINING

Step = Callable[[], object]
SIZES = {"cuda": ("resnet50", 224, (128, 256, 512)), "cpu": ("resnet18", 32, (2,))}
"""Device -> network, side of the images in pixels, batch sizes to measure."""


def measure(device: str, until: float, report: Report) -> None:
    """Report the rate of the plain loop, of each variant of the app's step, and the best rate.

    Raises:
        RuntimeError: a variant failed for another reason than too little memory.
    """
    name, size, batches = SIZES[device]
    top, _ = ceiling.best("bf16", device)
    torch.backends.cudnn.benchmark = True
    flops = TRAINING * count_flops(model.build(name, classes=1000), torch.randn(1, 3, size, size))
    rates: dict[tuple[str, int], float] = {}  # form and batch -> images per second
    failed: list[str] = []

    def add(what: str, batch: int, make: Callable[[], Step]) -> None:
        label = f"{name}, {what}, batch {batch}"
        release(device)
        try:
            rate = rates[what, batch] = batch / seconds_of(make(), device)
        except torch.OutOfMemoryError:
            report(label, "out of memory")
            return
        except RuntimeError as error:  # the other forms may work
            failed.append(label)
            report(label, f"failed: {' '.join(str(error).split())[:200]}")
            return
        share = {"share_of_ceiling": rate * flops / top} if device == "cuda" else {}
        report(label, rate, "img/s", peak_gib=peak_gib(device), **share)

    for batch in batches:
        if not rates or time.monotonic() < until:
            add("app's step", batch, lambda b=batch: app_step(device, b).step)
    batch = max(rates, key=lambda one: rates[one])[1] if rates else batches[0]
    add("plain eager loop", batch, lambda: plain_step(device, batch))
    if device == "cuda":
        add("CUDA graph", batch, lambda: graph(app_step(device, batch).core))
        reason = no_compiler()
        if reason is None and until - time.monotonic() > COMPILING:
            add("torch.compile", batch, lambda: app_step(device, batch, "default").step)
            add("torch.compile and CUDA graph", batch,
                lambda: graph(app_step(device, batch, "default").core))
        else:
            report("torch.compile", f"not measured: {reason or 'too little time remains'}")
    if not rates:
        raise RuntimeError("no form of the step could be measured")
    best = max(rates, key=lambda one: rates[one])
    report("best", rates[best], "img/s", form=best[0], batch=best[1])
    if failed:
        raise RuntimeError(f"failed: {'; '.join(failed)}")


def plain_step(device: str, batch: int) -> Step:
    """Return a function that makes a step of a plain loop: eager, channels_last, bf16, SGD."""
    name, size, _ = SIZES[device]
    network: Any = model.build(name, classes=1000).to(device, memory_format=torch.channels_last)
    images, labels = random_batch(device, batch, size)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            loss = functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()

    return step


def random_batch(device: str, batch: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images (batch, 3, size, size) in channels_last, and labels (batch,)."""
    images = torch.randn(batch, 3, size, size).to(device, memory_format=torch.channels_last)
    return images, torch.randint(1000, (batch,)).to(device)


def app_step(device: str, batch: int, compiled: str = "off") -> SimpleNamespace:
    """Return an object with two functions that make a training step of the app.

    The attributes are `step`, which calls the app's `train_step`, and `core`, which only computes
    gradients and updates the weights.
    """
    name, size, _ = SIZES[device]
    # A real session writes checkpoints and logs, which a measured step does not need.
    train.Session = OneStep
    alone = strategy(device)
    settings = TrainSettings(
        model=name, batch_size_per_rank=batch, precision="bf16", compile=compiled,
        synthetic=True, out=Path(tempfile.mkdtemp(prefix="gpu-check-")),
    )
    plan = SimpleNamespace(steps=1000, samples=1000 * batch)
    data: Any = SimpleNamespace(
        train=plan, classes=range(1000), to=SimpleNamespace(channels=3), bad=SimpleNamespace()
    )
    torch.manual_seed(17)
    network = method.build(settings, data, alone)
    images, labels = random_batch(device, batch, size)
    out: Any = SimpleNamespace(state=None, folder=settings.out)
    training = train.Training(settings, alone, data, network, out, out)
    batches = itertools.repeat((images, labels))

    def core() -> None:
        training.compute_gradients(images, labels, batch)
        training.optimizer.step()

    return SimpleNamespace(step=lambda: training.train_step(batches), core=core)


def graph(step: Step) -> Step:
    """Capture `step` as a CUDA graph, and return the function that replays the graph.

    Before the capture, `step` runs three times on a side stream.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    return captured.replay
