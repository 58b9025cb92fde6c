"""Train a ResNet, from the first batch to the last checkpoint.

Reproduces, with the settings of `recipes/resnet-imagenet/`:

- ResNet-20 on Fashion-MNIST on two CPU cores (`cpu-quickstart`).

Method: SGD with momentum, no weight decay on biases and batch normalization,
gradual warm-up and linear scaling (Goyal et al., arXiv:1706.02677), cosine or
polynomial decay, label smoothing (Szegedy et al., arXiv:1512.00567, section 7).
Everything that makes up the training is in this file; `trainkit` has what every
app shares: metrics, checkpoints, signals.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnet_imagenet import inputs, model
from resnet_imagenet.evaluate import evaluate
from resnet_imagenet.inputs import Inputs
from resnet_imagenet.settings import TrainSettings
from trainkit import metrics, outputs, schedules
from trainkit.checkpoint import State
from trainkit.engine import Engine
from trainkit.exits import DivergedError, StoppedError
from trainkit.metrics import Console
from trainkit.outputs import Outputs
from trainkit.signals import StopFlag

PACKAGES = ("torch", "nvidia-dali-cuda120", "numpy", "trainkit", "resnet-imagenet")
FREE = {"data", "out", "threads", "resume", "checkpoint_every", "keep", "log_every", "max_steps"}
"""Settings that may differ when a training goes on; all others shape the weights or the curve."""


def train(settings: TrainSettings, engine: Engine | None = None) -> None:
    """Train as `settings` say; what it writes is in `settings.out`.

    Raises:
        AppError: with the exit code of the app contract.
    """
    engine = engine or Engine()
    assert settings.out is not None  # noqa: S101 - `settings.check` saw to it
    if outputs.is_finished(settings.out, settings.resume):
        print(f"{settings.out} is finished, there is nothing to go on with")
        return
    be_deterministic(settings.seed)
    data = inputs.open_inputs(settings, engine)
    network = model.build(
        settings.model,
        classes=len(data.classes),
        channels=data.to.channels,
        stem=settings.stem,  # type: ignore[arg-type]  # argparse checked the choice
    ).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = sgd(network, settings)
    out = outputs.open_outputs(
        settings.out,
        settings.resume,
        identity(settings),
        keep=settings.keep,
        packages=PACKAGES,
        warn=print,
    )
    training = Training(settings, engine, data, network, optimizer, out)
    with StopFlag() as stop:
        training.run(stop)


def be_deterministic(seed: int) -> None:
    """Make equal settings give bit-equal weights on the same machine and thread count."""
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    # Only debugging needs it, and it would fill every new tensor with NaN first.
    torch.utils.deterministic.fill_uninitialized_memory = False


def identity(settings: TrainSettings) -> dict[str, Any]:
    """Return the settings that a resumed training must share with its checkpoint."""
    values = dataclasses.asdict(settings)
    return {name: value for name, value in values.items() if name not in FREE}


def sgd(network: nn.Module, settings: TrainSettings) -> torch.optim.SGD:
    """Return SGD that decays weights only: Goyal et al., arXiv:1706.02677, section 5.1 (BN)."""
    parameters = list(network.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=settings.base_lr, momentum=settings.momentum)


def learning_rate(settings: TrainSettings, batch: int, steps: int) -> Callable[[int], float]:
    """Return the learning rate as a function of the step, for a global batch and steps per epoch.

    The warm-up counts the coming step (step + 1), so that no step has rate 0.
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


@dataclasses.dataclass
class Window:
    """Sums since the last line of progress; kept in checkpoints, so no window is cut short."""

    steps: int = 0
    images: int = 0
    loss: float = 0.0
    seconds: float = 0.0
    waiting: float = 0.0

    def add(self, images: int, loss: float, seconds: float, waiting: float) -> None:
        """Count one step: its images, mean loss, wall time, and wait for data within that."""
        self.steps += 1
        self.images += images
        self.loss += loss * images
        self.seconds += seconds
        self.waiting += waiting


class Training:
    """One training: its parts, its position, and the loop over them.

    Attributes:
        epoch: the running epoch, counted from 0.
        step: steps made in this epoch.
    """

    def __init__(
        self,
        settings: TrainSettings,
        engine: Engine,
        data: Inputs,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        out: Outputs,
    ) -> None:
        self.settings, self.engine, self.data = settings, engine, data
        self.network, self.optimizer, self.out = network, optimizer, out
        self.epoch, self.step, self.window = 0, 0, Window()
        self.seconds = 0.0
        self.scores: dict[str, float] = {}
        self.batch = settings.batch_size_per_rank * engine.size
        self.rate = learning_rate(settings, self.batch, data.train.steps)
        planned = settings.epochs * data.train.steps
        self.last_step = min(planned, settings.max_steps or planned)
        if out.state is not None:
            self.restore(out.state)
        self.console = Console(self.last_step, self.steps_done, quiet=not engine.is_main)

    @property
    def steps_done(self) -> int:
        """Return the updates made since the start of the training."""
        return self.epoch * self.data.train.steps + self.step

    def run(self, stop: StopFlag) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        self.say_start()
        try:
            while self.steps_done < self.last_step:
                self.run_epoch(stop)
        except StoppedError:
            self.out.log.stop(metrics.RUN_STOP, status=metrics.ABORTED, step=self.steps_done)
            raise
        except DivergedError:
            self.out.log.stop(metrics.RUN_STOP, status=metrics.ABORTED, step=self.steps_done + 1)
            raise
        finally:
            self.console.close()
        self.out.log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=self.steps_done)
        self.out.finish(self.result())

    def run_epoch(self, stop: StopFlag) -> None:
        """Train the rest of the running epoch, evaluate, and write a checkpoint."""
        log, number, steps = self.out.log, self.epoch + 1, self.data.train.steps
        if self.step == 0:
            log.start(metrics.EPOCH_START, epoch_num=number, step=self.steps_done)
        batches = self.data.train.epoch(self.epoch, self.step)
        while self.step < steps and self.steps_done < self.last_step:
            self.train_step(batches)
            if stop:
                self.stop_here(stop, log.position())
            every = self.settings.checkpoint_every
            if every and self.steps_done % every == 0 and self.step < steps:
                self.save(log.position())
        before = log.position()
        log.stop(metrics.EPOCH_STOP, epoch_num=number, step=self.steps_done)
        if self.is_evaluated(number) and not self.evaluate(stop):
            self.stop_here(stop, before)
        if self.step == steps:
            self.epoch, self.step = number, 0
        self.save(log.position())

    def train_step(self, batches: Any) -> None:
        """Make one update: the heart of it all."""
        started = time.perf_counter()
        images, labels = next(batches)
        waited = time.perf_counter() - started
        rate = self.rate(self.steps_done)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.network.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.settings.precision == "bf16"):
            logits = self.network(images)
        loss = cross_entropy(logits, labels, self.settings.label_smoothing)
        value = loss.item()
        if not math.isfinite(value):
            raise DivergedError(
                f"the loss is {value} at step {self.steps_done + 1} (epoch {self.epoch + 1}, "
                f"learning rate {rate:.4g}); a lower --base-lr or a longer warm-up may help"
            )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.step += 1
        self.window.add(len(labels), value, time.perf_counter() - started, waited)
        self.console.step()
        if self.steps_done % self.settings.log_every == 0 or self.step == self.data.train.steps:
            self.report(rate)

    def evaluate(self, stop: StopFlag) -> bool:
        """Evaluate and log; return False if a signal cut it short."""
        where = {"epoch_num": self.epoch + 1, "step": self.steps_done}
        self.out.log.start(metrics.EVAL_START, **where)
        precision = self.settings.precision
        scores = evaluate(self.network, self.data.evaluation, precision, lambda: bool(stop))
        if scores is None:
            return False
        self.out.log.event(metrics.EVAL_ACCURACY, scores.top1, **where)
        self.out.log.event(metrics.EVAL_ACCURACY_TOP5, scores.top5, **where)
        self.out.log.event(metrics.EVAL_LOSS, scores.loss, **where)
        self.out.log.stop(metrics.EVAL_STOP, **where)
        self.scores = dataclasses.asdict(scores)
        self.console.line(f"epoch {self.epoch + 1}/{self.settings.epochs}  {scores}")
        return True

    def is_evaluated(self, number: int) -> bool:
        """Return whether there is an evaluation after epoch `number` (from 1)."""
        every = self.settings.eval_every
        due = every > 0 and (number % every == 0 or self.steps_done == self.last_step)
        return due and not self.settings.synthetic

    def report(self, rate: float) -> None:
        """Log the window since the last report, and begin a new one."""
        window, self.window = self.window, Window()
        where = {"epoch_num": self.epoch + 1, "step": self.steps_done}
        loss, speed = window.loss / window.images, window.images / window.seconds
        self.out.log.event(metrics.TRAIN_LOSS, loss, **where)
        self.out.log.event(metrics.LEARNING_RATE, rate, **where)
        self.out.log.event(metrics.THROUGHPUT, speed, unit="img/s", **where)
        self.out.log.event(metrics.DATA_WAIT, window.waiting / window.seconds, **where)
        self.seconds += window.seconds
        self.console.progress(
            f"epoch {self.epoch + 1}/{self.settings.epochs}  step {self.steps_done}/"
            f"{self.last_step}  loss {loss:.4f}  lr {rate:.4f}  {speed:.0f} img/s"
        )

    def stop_here(self, stop: StopFlag, offset: int) -> None:
        """Write a checkpoint and end with the code for "stopped early, resumable"."""
        assert stop.received is not None  # noqa: S101 - the caller asked
        self.save(offset)
        raise StoppedError(
            f"stopped by {stop.received.name} after step {self.steps_done} of {self.last_step}; "
            "go on with --resume auto"
        )

    def save(self, offset: int) -> None:
        """Write a checkpoint; `offset` is the size of the metrics that belong to it."""
        if not self.engine.is_main:
            return
        state: State = {
            "identity": identity(self.settings),
            "epoch": self.epoch,
            "step": self.step,
            "model": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "window": dataclasses.asdict(self.window),
            "seconds": self.seconds,
            "scores": self.scores,
            "metrics_offset": offset,
            "network": self.data.describe(self.settings),
        }
        self.out.checkpoints.save(self.steps_done, state)

    def restore(self, state: State) -> None:
        """Go back to the moment of a checkpoint."""
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        self.epoch, self.step = state["epoch"], state["step"]
        self.window = Window(**state["window"])
        self.seconds, self.scores = state["seconds"], state["scores"]

    def say_start(self) -> None:
        """Log what the training is, or where it goes on."""
        log, steps = self.out.log, self.steps_done
        if self.out.state is not None:
            log.event(metrics.RESUMED, steps, step=steps)
            self.console.line(f"going on from step {steps} of {self.last_step}")
            return
        log.start(metrics.RUN_START)
        log.event(metrics.SEED, self.settings.seed)
        log.event(metrics.GLOBAL_BATCH_SIZE, self.batch)
        log.event(metrics.TRAIN_SAMPLES, self.data.train.samples)
        log.event(metrics.EVAL_SAMPLES, self.data.evaluation.samples)

    def result(self) -> dict[str, Any]:
        """Return the content of `result.json`."""
        trained = self.steps_done
        return {
            "status": metrics.SUCCESS,
            "model": self.settings.model,
            "steps": trained,
            "epochs": trained / self.data.train.steps,
            "training_seconds": self.seconds,
            "evaluation": self.scores or None,
        }


def cross_entropy(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """Return the mean loss of logits (N, classes) in fp32, with label smoothing."""
    return functional.cross_entropy(logits.float(), labels, label_smoothing=smoothing)
