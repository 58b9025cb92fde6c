"""The formulas of a training: initial weights, optimizer, learning rate and loss."""

from __future__ import annotations

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from resnet_imagenet import model
from resnet_imagenet.inputs import Inputs
from resnet_imagenet.settings import WARMUP_EPOCHS, TrainSettings
from resnet_imagenet.state import load_initial_weights
from trainkit import checkpoint, schedules
from trainkit.exits import ArgumentError
from trainkit.torch import optim
from trainkit.torch.strategy import TorchStrategy
from trainkit.training import Course

HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}
"""Precision -> dtype of autocast; other precisions do not use autocast."""


def build(settings: TrainSettings, data: Inputs, strategy: TorchStrategy) -> nn.Module:
    """Return the network with its initial weights, on its device.

    Raises:
        ArgumentError: `--sync-bn` is not supported by the strategy or the device.
    """
    network: nn.Module = model.build(
        settings.model, classes=len(data.classes), channels=data.to.channels, stem=settings.stem,
        bn_momentum=settings.bn_momentum,
    )
    if settings.initial is not None:
        load_initial_weights(checkpoint.load(settings.initial), network, str(settings.initial))
    if settings.sync_bn:
        if strategy.device.type != "cuda" or strategy.name != "ddp":
            raise ArgumentError(
                "--sync-bn needs --strategy ddp on GPUs: PyTorch supports it nowhere else",
                code="arguments-conflict",
            )
        network = nn.SyncBatchNorm.convert_sync_batchnorm(network)  # type: ignore[no-untyped-call]
    network.to(strategy.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def check(settings: TrainSettings, steps: int, device: torch.device) -> None:
    """Raise an error if settings contradict the data or the machine, before anything is written.

    Args:
        settings: options of the training.
        steps: steps per epoch.
        device: device of the network.

    Raises:
        ArgumentError: the warm-up is longer than the training, or a compiler is missing.
    """
    warm, (most, what) = warmup_steps(settings, steps), longest_warmup(settings, steps)
    if warm > most:
        raise ArgumentError(
            f"a warm-up of {warm} steps is longer than {what} ({most} steps, {steps} per epoch): "
            "shorten it with --warmup-epochs or --warmup-steps",
            code="arguments-conflict",
        )
    if settings.compile != "off":
        check_compiler(settings.compile, device)


VARIANT = "only the images on torch-*-dev have it: containers/README.md, torch.compile"


def check_compiler(mode: str, device: torch.device) -> None:
    """Raise an error if the network is to be compiled and a compiler is missing.

    Raises:
        ArgumentError: a C++ compiler is missing or, for a GPU, Triton is missing.
    """
    compiler = os.environ.get("CXX", "g++")
    if device.type == "cuda" and importlib.util.find_spec("triton") is None:
        raise ArgumentError(
            f"--compile {mode}: Triton is not installed; {VARIANT}", code="library-missing"
        )
    if shutil.which(compiler) is None:  # on a GPU, compiled C++ code launches the kernels
        raise ArgumentError(
            f"--compile {mode}: no C++ compiler {compiler} (set CXX, or use --compile off); "
            f"{VARIANT}",
            code="program-missing",
        )


def given_cache() -> Path | None:
    """Return the folder that the image or the user has chosen for compiled code, or None."""
    given = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
    # PyTorch sets the variable to a folder under /tmp if it is not set when PyTorch is imported.
    default = Path(tempfile.gettempdir(), "torchinductor_")
    if not given or given.startswith(str(default)) or not os.access(given, os.W_OK):
        return None
    return Path(given)


def compile_network(network: nn.Module, mode: str, cache: Path) -> None:
    """Compile `network` at its first call; keep the compiled code in the folder `cache`."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache.resolve())
    network.compile(mode=mode)


def make_optimizer(network: nn.Module, settings: TrainSettings) -> Optimizer:
    """Return SGD with momentum, or LARS, without weight decay of biases and normalization.

    The learning rate of SGD is not part of the velocity: v <- m v + g, w <- w - lr v. Therefore a
    changing rate needs no momentum correction: Goyal et al., arXiv:1706.02677, section 3, remark 2.
    """
    groups = optim.decay_groups(network.parameters(), settings.weight_decay)
    if settings.optimizer == "lars":
        return optim.Lars(groups, settings.base_lr, settings.momentum, settings.trust)
    optimizer = torch.optim.SGD(
        groups, lr=settings.base_lr, momentum=settings.momentum, nesterov=settings.nesterov,
        fused=True,  # one pass over the weights instead of one per operation
    )
    if settings.momentum:
        # PyTorch leaves the buffers uninitialized if fp16 skips the first step after an overflow.
        for parameter in network.parameters():
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer


def total_steps(settings: TrainSettings, steps: int) -> int:
    """Return the number of steps of the whole training, for `steps` steps per epoch."""
    return settings.steps or settings.epochs * steps


def course(settings: TrainSettings, steps: int) -> Course:
    """Return the length of a training whose epochs have `steps` steps, and its intervals.

    These are the intervals between log lines, checkpoints and evaluations.
    """
    found = Course.of(settings, steps, total_steps(settings, steps))
    return replace(found, eval_every=0) if settings.synthetic else found


def longest_warmup(settings: TrainSettings, steps: int) -> tuple[int, str]:
    """Return the largest allowed number of warm-up steps, and what limits it, for messages.

    `steps` is the number of steps per epoch.
    """
    if settings.schedule == "cyclic":
        return round(settings.cycle_epochs * steps) - 1, "all of a cycle but its last step"
    return total_steps(settings, steps), "the training"


def warmup_steps(settings: TrainSettings, steps: int) -> int:
    """Return the number of warm-up steps, for `steps` steps per epoch.

    A default warm-up that is too long is shortened to 5/90 of the training (or of a cycle), because
    the defaults are 5 epochs of warm-up in a training of 90 epochs.
    """
    if settings.warmup_steps is not None:
        return settings.warmup_steps
    if settings.warmup_epochs is not None:
        return round(settings.warmup_epochs * steps)
    usual, (most, _) = round(WARMUP_EPOCHS * steps), longest_warmup(settings, steps)
    return usual if usual <= most else round(most * WARMUP_EPOCHS / TrainSettings.epochs)


def warmup_note(settings: TrainSettings, steps: int) -> str | None:
    """Return a note for the user if the default warm-up was shortened, else None.

    `steps` is the number of steps per epoch.
    """
    warm, usual = warmup_steps(settings, steps), round(WARMUP_EPOCHS * steps)
    if warm == usual or (settings.warmup_steps, settings.warmup_epochs) != (None, None):
        return None
    most, what = longest_warmup(settings, steps)
    return (
        f"the warm-up of {WARMUP_EPOCHS:g} epochs ({usual} steps) is longer than {what} ({most} "
        f"steps): shortened to {warm} steps; change it with --warmup-epochs or --warmup-steps"
    )


def learning_rate(settings: TrainSettings, batch: int, steps: int) -> Callable[[int], float]:
    """Return the learning rate as a function of the number of updates so far.

    Args:
        settings: options that define the peak, the warm-up and the decay.
        batch: the global batch.
        steps: steps per epoch.
    """
    peak = schedules.linear_scaling(settings.base_lr, batch, settings.base_batch or batch)
    first = settings.warmup_lr
    warm = warmup_steps(settings, steps)
    decay = total_steps(settings, steps) - warm
    milestones = [round(epoch * steps) for epoch in settings.milestones]
    cycle = round(settings.cycle_epochs * steps)

    def rate(step: int) -> float:
        if settings.schedule == "cyclic":
            return schedules.cyclic_polynomial(
                step, cycle, warm, peak, start=first, power=settings.power
            )
        if step < warm and settings.warmup == "constant":
            return schedules.constant_warmup(step, warm, peak, first)
        if step < warm:
            # A warm-up from 0 uses the next step, so that no step has the rate 0.
            return schedules.warmup(step if first else step + 1, warm, peak, first)
        if settings.schedule == "step":
            return schedules.step_decay(step, milestones, peak)
        if settings.schedule == "polynomial":
            return schedules.polynomial(step - warm, decay, peak, power=settings.power)
        if settings.schedule == "cosine":
            return schedules.cosine(step - warm, decay, peak)
        return peak

    return rate


def summed_cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the sum of the cross-entropy losses in fp32, with label smoothing.

    Szegedy et al., arXiv:1512.00567, section 7.

    Args:
        logits: (N, classes).
        labels: (N,).
        smoothing: share of the target that is spread over all classes.
    """
    return functional.cross_entropy(
        logits.float(), labels, label_smoothing=smoothing, reduction="sum"
    )
