"""Train a ResNet, from the first batch to the last checkpoint.

Reproduces, with the settings of `recipes/resnet-imagenet/`:

- ResNet-20 on Fashion-MNIST on two CPU cores (`cpu-quickstart`): top-1 90.15, 90.42,
  90.15 % with seeds 17, 18, 19 after 3 epochs, at 910 to 1,057 img/s (AMD EPYC with
  AVX-512 BF16, in the image; evidence in `site/results/resnet-imagenet/`);
- the same after 10 epochs (`cpu-convergence`): 92.71, 92.54, 92.67 % on one core.

Method: SGD with momentum or LARS, no weight decay on biases and batch normalization,
gradual warm-up and linear scaling (Goyal et al., arXiv:1706.02677), stepwise, cosine,
polynomial or cyclic decay, label smoothing (Szegedy et al., arXiv:1512.00567, section 7),
and a second stage from the weights of a first one (Codreanu et al., arXiv:1711.04291).
The loop is in this file, the formulas are in `method.py`; `trainkit` has what every app
shares: ranks, metrics, checkpoints, signals.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from resnet_imagenet import inputs, method
from resnet_imagenet.evaluate import evaluate
from resnet_imagenet.inputs import Inputs
from resnet_imagenet.method import HALF
from resnet_imagenet.profile import Profile
from resnet_imagenet.progress import Progress, Step
from resnet_imagenet.reporting import Reporter
from resnet_imagenet.settings import TrainSettings
from resnet_imagenet.state import Trained, identity, progress_of
from trainkit import metrics, outputs, parts
from trainkit.console import Console, Counter
from trainkit.exits import AppError, DivergedError, RanksDifferError, StoppedError
from trainkit.outputs import Outputs
from trainkit.signals import StopFlag
from trainkit.torch import optim
from trainkit.torch.parts import digest
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy

DALI = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")  # an image has one of them
PACKAGES = ("torch", *DALI, "numpy", "trainkit", "resnet-imagenet")


def train(settings: TrainSettings) -> None:
    """Train as `settings` say; everything it writes is in `settings.out`.

    Raises:
        AppError: with the exit code of the app contract.
    """
    ranks = start(
        settings.strategy, device=settings.device, backend=settings.backend,
        compression=settings.compression,
    )
    assert settings.out is not None  # noqa: S101 - `settings.check` saw to it
    with ranks.explained(), StopFlag() as stop:
        if ranks.share(
            ranks.is_main and outputs.is_finished(settings.out, settings.resume, warn=print)
        ):
            print(f"{settings.out} has a finished run, there is nothing to go on with")
            return
        method.prepare(settings, ranks.device)
        data = inputs.open_inputs(settings, ranks)
        method.check(settings, data.train.steps, ranks.device)
        if ranks.is_main and (note := method.warmup_note(settings, data.train.steps)):
            print(note)
        network = method.build(settings, data, ranks)
        out = outputs.open_outputs(
            settings.out, settings.resume, identity(settings, data, ranks), strategy=ranks,
            keep=settings.keep, packages=PACKAGES, warn=print,
        )
        with out.log:
            Training(settings, ranks, data, network, out).run(stop)
        ranks.close()


class Training:
    """The loop over epochs and steps."""

    def __init__(
        self, settings: TrainSettings, ranks: TorchStrategy, data: Inputs, network: nn.Module,
        out: Outputs,
    ) -> None:
        self.settings, self.strategy, self.data, self.out = settings, ranks, data, out
        self.batch = settings.batch_size_per_rank * ranks.size
        steps = data.train.steps
        self.rate = method.learning_rate(settings, self.batch, steps)
        planned = method.total_steps(settings, steps)
        self.last_step = min(planned, settings.max_steps or planned)
        average = optim.moving_average(network, settings.ema_decay) if settings.ema_decay else None
        if settings.compile != "off":
            cache = settings.compile_cache or outputs.own_folder(out.folder / "compile-cache")
            method.compile_network(network, settings.compile, cache)
        self.model = ranks.distribute(network)
        self.optimizer = method.make_optimizer(network, settings)
        scaler = torch.amp.GradScaler(ranks.device.type, enabled=settings.precision == "fp16")
        self.trained = Trained(network, self.optimizer, average, scaler)
        self.at = Progress(steps)
        if out.state is not None:
            parts.restore(self.trained.parts(ranks), out.state["parts"])
            self.at = progress_of(out.state)
        console = Console(self.last_step, self.at.steps_done, quiet=not ranks.is_main)
        self.reporter = Reporter(out.log, console, -(-planned // steps), self.last_step)
        self.profile = Profile(settings.profile, ranks)
        self.under_way: list[Step] = []
        self.stopping = self.agreed = False
        data.bad.tell = self.reporter.bad_record
        if out.state is not None:
            data.bad.merge(out.state["bad_records"])

    def run(self, stop: StopFlag) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        self.begin()
        try:
            # The last epoch may have been cut short after its last step, in its evaluation.
            while self.at.steps_done < self.last_step or self.at.closed != self.at.steps_done:
                self.run_epoch(stop)
            self.check_agreement()
            self.out.checkpoints.wait()
        except AppError:
            with contextlib.suppress(OSError):  # a full disk must not hide the first error
                self.out.log.stop(metrics.RUN_STOP, status=metrics.ABORTED, **self.at.where)
            raise
        finally:
            self.reporter.console.close()
        self.out.finish(self.reporter.ended(self.at, self.settings.model))

    def run_epoch(self, stop: StopFlag) -> None:
        """Train the rest of the running epoch, evaluate, and write a checkpoint."""
        if self.at.step == 0:
            self.out.log.start(metrics.EPOCH_START, **self.at.where)
        batches = self.data.train.epoch(self.at.epoch, self.at.step)
        every = self.settings.checkpoint_every or self.last_step
        while not self.at.epoch_is_over and self.at.steps_done < self.last_step:
            self.train_step(batches, stop)
            if not self.agreed:
                self.check_agreement()
            if self.stopping:
                self.stop_here(stop, self.out.log.position())
            if self.at.steps_done % every == 0 and not self.at.epoch_is_over:
                self.save(self.out.log.position())
        self.settle()
        for found in self.strategy.gather(self.data.bad.found):
            self.data.bad.merge(found)  # the limit holds for all ranks together
        before = self.out.log.position()
        self.out.log.stop(metrics.EPOCH_STOP, **self.at.where)
        if self.evaluation_is_due() and not self.evaluate(stop):
            self.stop_here(stop, before)
        if self.at.epoch_is_over:
            self.at.next_epoch()
        self.at.closed = self.at.steps_done
        self.save(self.out.log.position())

    def train_step(self, batches: Iterator[tuple[Tensor, Tensor]], stop: StopFlag) -> None:
        """Make one update: forward, loss, backward, averages over the ranks, optimizer."""
        self.profile.before()
        started, communicated = time.perf_counter(), self.strategy.communicating
        images, labels = next(batches)
        waited = time.perf_counter() - started
        rate = self.rate(self.at.steps_done)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        count = min(self.batch, self.data.train.samples - self.at.step * self.batch)
        loss = self.compute_gradients(images, labels, count)
        sums = self.strategy.start_sum(torch.stack([loss, loss.new_full((), bool(stop))]))
        scaler = self.trained.scaler
        with self.strategy.averaged():
            scaler.step(self.optimizer)
        scaler.update()
        if self.trained.average is not None:
            self.trained.average.update_parameters(self.trained.network)
        self.at.step += 1
        self.under_way.append(Step(self.at.epoch, self.at.steps_done, count, rate, sums))
        due = self.at.steps_done % self.settings.log_every == 0 or self.at.epoch_is_over
        self.settle(leave=0 if due or self.profile.is_on else 1)
        took = time.perf_counter() - started, waited, self.strategy.communicating - communicated
        self.at.window.add_time(*took)
        self.reporter.console.step()
        if told := self.profile.after(*took):
            self.reporter.console.line(told)
        if due:
            self.reporter.stepped(self.at, rate)

    def compute_gradients(self, images: Tensor, labels: Tensor, count: int) -> Tensor:
        """Add up the gradients of the mean loss over the `count` images of all ranks.

        The strategy averages over the ranks, so each rank contributes its sum times size /
        count. Return the sum of this rank's losses.
        """
        device, half = self.strategy.device, HALF.get(self.settings.precision)
        self.model.train()
        self.optimizer.zero_grad()
        parts = self.settings.accumulation
        total = torch.zeros((), dtype=torch.float64, device=device)
        pairs = zip(images.tensor_split(parts), labels.tensor_split(parts), strict=True)
        for number, (part, classes) in enumerate(pairs, 1):
            with self.strategy.backward(self.model, last=number == parts):
                with torch.autocast(device.type, half, enabled=half is not None):
                    logits = self.model(part.to(device, non_blocking=True))
                loss = method.summed_cross_entropy(
                    logits, classes.to(device, non_blocking=True), self.settings.label_smoothing
                )
                scaled = self.trained.scaler.scale(loss * (self.strategy.size / count))
                scaled.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def settle(self, leave: int = 0) -> None:
        """Take in the losses of the steps under way but the `leave` newest.

        One step late, the wait is short: sums over the ranks, and a GPU, had a step's time.

        Raises:
            DivergedError: a loss is not finite.
        """
        while len(self.under_way) > leave:
            step = self.under_way.pop(0)
            loss, stopping = step.sums.result()
            self.stopping |= stopping > 0
            if not math.isfinite(loss):
                raise DivergedError(
                    f"the loss is {loss} at step {step.number} (epoch {step.epoch + 1}, learning "
                    f"rate {step.rate:.4g}); a lower --base-lr or a longer warm-up may help"
                )
            self.at.window.add_losses(step.images, loss)

    def check_agreement(self) -> None:
        """Compare the weights of all ranks, bit by bit: after the first step, and at the end.

        A framework that does not average the gradients says nothing, and learns something.

        Raises:
            RanksDifferError: they are not equal.
        """
        own = digest([self.trained.network])
        if self.strategy.any(own != self.strategy.share(own)):
            raise RanksDifferError(
                f"the ranks have different weights after step {self.at.steps_done}: gradients are "
                f"not averaged by --strategy {self.strategy.name}, or a node is faulty"
            )
        self.agreed = True

    def evaluation_is_due(self) -> bool:
        """Return whether the running epoch ends with an evaluation."""
        every = self.settings.eval_every
        due = every > 0 and (
            (self.at.epoch + 1) % every == 0 or self.at.steps_done == self.last_step
        )
        return due and not self.settings.synthetic

    def evaluate(self, stop: StopFlag) -> bool:
        """Evaluate and log; return False if a signal cut it short."""
        self.average_statistics()
        self.out.log.start(metrics.EVAL_START, **self.at.where)
        batches, half = self.data.evaluation, HALF.get(self.settings.precision)
        quiet = not self.strategy.is_main
        with Counter("evaluating", batches.steps, "batches", quiet=quiet) as done:
            scores = evaluate(
                self.trained.best, batches, half, self.strategy, lambda: bool(stop), done.add
            )
        if scores is not None:
            self.reporter.evaluated(self.at, scores)
        return scores is not None

    def average_statistics(self) -> None:
        """Replace the moving averages of batch normalization by their means over the ranks."""
        # Every rank in the same order: `best` may be the network itself.
        for network in dict.fromkeys((self.trained.network, self.trained.best)):
            self.strategy.average(b for b in network.buffers() if b.is_floating_point())

    def stop_here(self, stop: StopFlag, offset: int) -> None:
        """Write a checkpoint and end with the code for "stopped early, resumable"."""
        self.settle()
        self.save(offset)
        self.out.checkpoints.wait()
        signal = stop.name if stop else "a signal to another rank"
        raise StoppedError(
            f"stopped by {signal} after step {self.at.steps_done} of {self.last_step}; "
            "go on with --resume auto"
        )

    def save(self, offset: int) -> None:
        """Begin to write a checkpoint; `offset` is the size of the metrics that belong to it."""
        self.settle()
        self.average_statistics()
        state = parts.snapshot(self.trained.parts(self.strategy))  # of all ranks
        if self.strategy.is_main:
            more = {
                "step": self.at.steps_done,
                "identity": identity(self.settings, self.data, self.strategy),
                "metrics_offset": offset,
                "about": self.data.describe(self.settings),
                "bad_records": self.data.bad.found,
                "progress": dataclasses.asdict(self.at),
            }
            self.out.checkpoints.start(self.at.steps_done, {"parts": state, **more})

    def begin(self) -> None:
        """Tell what the training is, or where it goes on."""
        if self.out.state is not None:
            self.reporter.resumed(self.at)
            return
        self.reporter.began({
            metrics.SEED: self.settings.seed,
            metrics.GLOBAL_BATCH_SIZE: self.batch,
            metrics.TRAIN_SAMPLES: self.data.train.samples,
            metrics.EVAL_SAMPLES: self.data.evaluation.samples,
        })
