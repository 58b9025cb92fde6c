"""Train a ResNet, from the first batch to the last checkpoint.

Reproduces, with the settings of `recipes/resnet-imagenet/`:

- ResNet-20 on Fashion-MNIST on two CPU cores (`cpu-quickstart`): top-1 90.15, 90.42,
  90.15 % with seeds 17, 18, 19 after 3 epochs, at 1,197 img/s where the cores are
  free (AMD EPYC with AVX-512 BF16, tcmalloc, PyTorch 2.13.0, DALI 2.4.0).

Method: SGD with momentum, no weight decay on biases and batch normalization,
gradual warm-up and linear scaling (Goyal et al., arXiv:1706.02677), cosine or
polynomial decay, label smoothing (Szegedy et al., arXiv:1512.00567, section 7).
Everything that makes up the training is in this file; `trainkit` has what every
app shares: metrics, checkpoints, signals.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnet_imagenet import inputs, model
from resnet_imagenet.bad import BAD_RECORD
from resnet_imagenet.evaluate import evaluate
from resnet_imagenet.inputs import Inputs
from resnet_imagenet.progress import Progress, Window, restore, snapshot
from resnet_imagenet.settings import TrainSettings
from trainkit import metrics, outputs, schedules
from trainkit.engine import Engine
from trainkit.exits import AppError, DivergedError, StoppedError
from trainkit.metrics import Console
from trainkit.outputs import Outputs
from trainkit.signals import StopFlag

PACKAGES = ("torch", "nvidia-dali-cuda120", "numpy", "trainkit", "resnet-imagenet")
FREE = {
    *("data", "stage", "out", "threads", "resume", "checkpoint_every", "keep", "log_every"),
    *("max_steps", "max_bad_records"),
}
"""Settings that may change when a training goes on; all others shape its weights or its curve."""


def train(settings: TrainSettings, engine: Engine | None = None) -> None:
    """Train as `settings` say; everything it writes is in `settings.out`.

    Raises:
        AppError: with the exit code of the app contract.
    """
    engine = engine or Engine()
    assert settings.out is not None  # noqa: S101 - `settings.check` saw to it
    if outputs.is_finished(settings.out, settings.resume):
        print(f"{settings.out} has a finished run, there is nothing to go on with")
        return
    be_deterministic(settings.seed)
    data = inputs.open_inputs(settings, engine)
    network = model.build(
        settings.model, classes=len(data.classes), channels=data.to.channels, stem=settings.stem
    )
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    out = outputs.open_outputs(
        settings.out,
        settings.resume,
        identity(settings, data),
        keep=settings.keep,
        packages=PACKAGES,
        warn=print,
    )
    with StopFlag() as stop, out.log:
        Training(settings, engine, data, network, out).run(stop)


def be_deterministic(seed: int) -> None:
    """Make equal settings give bit-equal weights on the same machine and thread count."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    # It would fill every new tensor with NaN, which finds bugs and costs time.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def identity(settings: TrainSettings, data: Inputs) -> dict[str, Any]:
    """Return the settings, and the data, that a resumed training shares with its checkpoint."""
    values = dataclasses.asdict(settings)
    return {"data": data.name} | {key: values[key] for key in values if key not in FREE}


def sgd(network: nn.Module, settings: TrainSettings) -> torch.optim.SGD:
    """Return SGD with momentum that decays weights only.

    No decay on biases and batch normalization (all have one dimension): Jia et al.,
    arXiv:1807.11205, section 3.
    """
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=settings.base_lr, momentum=settings.momentum)


def learning_rate(settings: TrainSettings, batch: int, steps: int) -> Callable[[int], float]:
    """Return the learning rate as a function of the steps done.

    The warm-up counts the coming step (step + 1), so that no step has rate 0.

    Args:
        settings: peak, warm-up and decay.
        batch: the global batch.
        steps: steps per epoch.
    """
    peak = schedules.linear_scaling(settings.base_lr, batch, settings.base_batch or batch)
    warm = round(settings.warmup_epochs * steps)
    decay = settings.epochs * steps - warm

    def rate(step: int) -> float:
        if step < warm:
            return schedules.warmup(step + 1, warm, peak)
        if settings.schedule == "cosine":
            return schedules.cosine(step - warm, decay, peak)
        return schedules.polynomial(step - warm, decay, peak, power=settings.power)

    return rate


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the mean loss of logits (N, classes) in fp32, with label smoothing."""
    return functional.cross_entropy(logits.float(), labels, label_smoothing=smoothing)


class Training:
    """The loop over epochs and steps, and what it tells on the way."""

    def __init__(
        self,
        settings: TrainSettings,
        engine: Engine,
        data: Inputs,
        network: nn.Module,
        out: Outputs,
    ) -> None:
        self.settings, self.engine, self.data = settings, engine, data
        self.network, self.out, self.log = network, out, out.log
        self.optimizer = sgd(network, settings)
        self.at = Progress(data.train.steps)
        if out.state is not None:
            self.at = restore(out.state, network, self.optimizer)
        self.batch = settings.batch_size_per_rank * engine.size
        self.rate = learning_rate(settings, self.batch, data.train.steps)
        planned = settings.epochs * data.train.steps
        self.last_step = min(planned, settings.max_steps or planned)
        self.console = Console(self.last_step, self.at.steps_done, quiet=not engine.is_main)
        data.bad.tell = self.bad_record

    def run(self, stop: StopFlag) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        self.log_start()
        try:
            while self.at.steps_done < self.last_step:
                self.run_epoch(stop)
        except AppError:
            with contextlib.suppress(OSError):  # a full disk must not hide the first error
                self.log.stop(metrics.RUN_STOP, status=metrics.ABORTED, **self.at.where)
            raise
        finally:
            self.console.close()
        self.log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=self.at.steps_done)
        self.out.finish(self.result())

    def run_epoch(self, stop: StopFlag) -> None:
        """Train the rest of the running epoch, evaluate, and write a checkpoint."""
        if self.at.step == 0:
            self.log.start(metrics.EPOCH_START, **self.at.where)
        batches = self.data.train.epoch(self.at.epoch, self.at.step)
        every = self.settings.checkpoint_every or self.last_step
        while not self.at.epoch_is_over and self.at.steps_done < self.last_step:
            self.train_step(batches)
            if stop:
                self.stop_here(stop, self.log.position())
            if self.at.steps_done % every == 0 and not self.at.epoch_is_over:
                self.save(self.log.position())
        before = self.log.position()
        self.log.stop(metrics.EPOCH_STOP, **self.at.where)
        if self.evaluation_is_due() and not self.evaluate(stop):
            self.stop_here(stop, before)
        if self.at.epoch_is_over:
            self.at.next_epoch()
        self.save(self.log.position())

    def train_step(self, batches: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Make one update: forward, loss, backward, SGD."""
        started = time.perf_counter()
        images, labels = next(batches)
        waited = time.perf_counter() - started
        rate = self.rate(self.at.steps_done)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.network.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings.precision == "bf16"):
            logits = self.network(images)
        loss = cross_entropy(logits, labels, self.settings.label_smoothing)
        value = loss.item()
        if not math.isfinite(value):
            raise DivergedError(
                f"the loss is {value} at step {self.at.steps_done + 1} (epoch {self.at.epoch + 1}, "
                f"learning rate {rate:.4g}); a lower --base-lr or a longer warm-up may help"
            )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.at.step += 1
        self.at.window.add(len(labels), value, time.perf_counter() - started, waited)
        self.console.step()
        if self.at.steps_done % self.settings.log_every == 0 or self.at.epoch_is_over:
            self.report(rate)

    def evaluation_is_due(self) -> bool:
        """Return whether the running epoch ends with an evaluation."""
        every = self.settings.eval_every
        due = every > 0 and (
            (self.at.epoch + 1) % every == 0 or self.at.steps_done == self.last_step
        )
        return due and not self.settings.synthetic

    def evaluate(self, stop: StopFlag) -> bool:
        """Evaluate and log; return False if a signal cut it short."""
        self.log.start(metrics.EVAL_START, **self.at.where)
        precision = self.settings.precision
        scores = evaluate(self.network, self.data.evaluation, precision, lambda: bool(stop))
        if scores is None:
            return False
        self.log.event(metrics.EVAL_ACCURACY, scores.top1, **self.at.where)
        self.log.event(metrics.EVAL_ACCURACY_TOP5, scores.top5, **self.at.where)
        self.log.event(metrics.EVAL_LOSS, scores.loss, **self.at.where)
        self.log.stop(metrics.EVAL_STOP, **self.at.where)
        self.at.scores = dataclasses.asdict(scores)
        self.console.line(f"epoch {self.at.epoch + 1}/{self.settings.epochs}  {scores}")
        return True

    def stop_here(self, stop: StopFlag, offset: int) -> None:
        """Write a checkpoint and end with the code for "stopped early, resumable"."""
        self.save(offset)
        raise StoppedError(
            f"stopped by {stop.name} after step {self.at.steps_done} of {self.last_step}; "
            "go on with --resume auto"
        )

    def save(self, offset: int) -> None:
        """Write a checkpoint; `offset` is the size of the metrics that belong to it."""
        if self.engine.is_main:
            about = {
                "identity": identity(self.settings, self.data),
                "metrics_offset": offset,
                "network": self.data.describe(self.settings),
            }
            state = snapshot(self.network, self.optimizer, self.at) | about
            self.out.checkpoints.save(self.at.steps_done, state)

    def report(self, rate: float) -> None:
        """Log the window since the last report, and begin a new one."""
        window, self.at.window = self.at.window, Window()
        loss, speed = window.loss / window.images, window.images / window.seconds
        self.log.event(metrics.TRAIN_LOSS, loss, **self.at.where)
        self.log.event(metrics.LEARNING_RATE, rate, **self.at.where)
        self.log.event(metrics.THROUGHPUT, speed, unit="img/s", **self.at.where)
        self.log.event(metrics.DATA_WAIT, window.waiting / window.seconds, **self.at.where)
        self.at.seconds += window.seconds
        self.console.progress(
            f"epoch {self.at.epoch + 1}/{self.settings.epochs}  step {self.at.steps_done}/"
            f"{self.last_step}  loss {loss:.4f}  lr {rate:.4f}  {speed:.0f} img/s"
        )

    def bad_record(self, text: str) -> None:
        """Name a record that cannot be decoded and is tolerated."""
        self.log.event(BAD_RECORD, text, **self.at.where)
        self.console.line(f"warning: {text}; another record takes its place")

    def log_start(self) -> None:
        """Log what the training is, or where it goes on."""
        if self.out.state is not None:
            self.log.event(metrics.RESUMED, self.at.steps_done, step=self.at.steps_done)
            self.console.line(f"going on from step {self.at.steps_done} of {self.last_step}")
            return
        self.log.start(metrics.RUN_START)
        self.log.event(metrics.SEED, self.settings.seed)
        self.log.event(metrics.GLOBAL_BATCH_SIZE, self.batch)
        self.log.event(metrics.TRAIN_SAMPLES, self.data.train.samples)
        self.log.event(metrics.EVAL_SAMPLES, self.data.evaluation.samples)

    def result(self) -> dict[str, Any]:
        """Return the content of `result.json`."""
        return {
            "status": metrics.SUCCESS,
            "model": self.settings.model,
            "steps": self.at.steps_done,
            "epochs": self.at.steps_done / self.at.steps_per_epoch,
            "training_seconds": self.at.seconds,
            "evaluation": self.at.scores or None,
        }
