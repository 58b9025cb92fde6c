"""Measure training steps of the app FutureGAN at 128 pixels, with random clips."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace
from typing import Any

import torch

from futuregan import method, train
from futuregan.clips import Batch
from futuregan.growth import batch_sizes
from futuregan.model import Shape
from futuregan.settings import TrainSettings
from gpuparts import Report
from gpuparts.timing import OneStep, peak_gib, release, seconds_of, strategy

SIZES = {"cuda": (128, 512, (4, 8, 16)), "cpu": (8, 4, (2,))}
"""Device -> side of the frames in pixels, number of features, numbers of clips per step."""


def measure(device: str, until: float, report: Report) -> None:
    """Report the training rate for each batch size, in frames and in clips per second."""
    torch.backends.cudnn.benchmark = True
    for number, clips in enumerate(SIZES[device][2]):
        if number and time.monotonic() > until:
            break
        label = f"FutureGAN, {SIZES[device][0]} px, bf16, {clips} clips"
        release(device)
        try:
            training, batches = app_training(device, clips, "bf16")
            seconds = seconds_of(lambda t=training, b=batches: t.train_step(b), device, window=3)
        except torch.OutOfMemoryError:
            report(label, "out of memory")
            break
        frames = training.settings.past + training.settings.future
        report(label, clips * frames / seconds, "img/s", clips_per_second=clips / seconds,
               peak_gib=peak_gib(device))


def app_training(
    device: str, clips: int, precision: str, size: int = 0, width: int = 0
) -> tuple[train.Training, Any]:
    """Return a training before its first step, and an endless iterator of random batches."""
    size, width = size or SIZES[device][0], width or SIZES[device][1]
    # A real session writes checkpoints and logs, which a measured step does not need.
    train.Session = OneStep
    torch.manual_seed(17)
    settings = TrainSettings(
        size=str(size), first_size=str(size), width=width, precision=precision, synthetic=True,
        batch_size_per_rank=batch_sizes(str(clips)), stddev_group=clips,
    )
    shape = Shape(size=size, past=settings.past, future=settings.future, width=width)
    plan = SimpleNamespace(steps=1000)
    data: Any = SimpleNamespace(shape=shape, train=SimpleNamespace(plan=lambda _: plan))
    out: Any = SimpleNamespace(state=None)
    training = train.Training(
        settings, strategy(device), method.growth(settings), data, out, out
    )
    draw = torch.Generator().manual_seed(17)
    frames = settings.past + settings.future
    values = torch.randint(256, (clips, 3, frames, size, size), generator=draw, dtype=torch.uint8)
    batch = Batch(values, torch.rand(clips, generator=draw), clips)
    return training, itertools.repeat(batch)
