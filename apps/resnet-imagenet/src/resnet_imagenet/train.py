"""Train a ResNet, from the first batch to the last checkpoint.

This app reproduces, with the settings of `recipes/resnet-imagenet/`:

- ResNet-20 on Fashion-MNIST on two CPU cores (`cpu-quickstart`): top-1 accuracy 90.15, 90.42 and
  90.15 % with seeds 17, 18 and 19 after 3 epochs, at 910 to 1,057 img/s (AMD EPYC with
  AVX-512 BF16, in the image; evidence in `site/results/resnet-imagenet/`);
- the same network after 10 epochs (`cpu-convergence`): 92.71, 92.54 and 92.67 % on one core.

Method: SGD with momentum or LARS, no weight decay on biases and batch normalization,
gradual warm-up and linear scaling (Goyal et al., arXiv:1706.02677), stepwise, cosine,
polynomial or cyclic decay, label smoothing (Szegedy et al., arXiv:1512.00567, section 7),
and optionally a second stage from the weights of a first stage (Codreanu et al., arXiv:1711.04291).
This file contains the loop, `method.py` the formulas, `model.py` the networks, and `state.py` the
content of a checkpoint. `trainkit` contains the code that all apps share: ranks, metrics,
checkpoints and signals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from resnet_imagenet import inputs, method
from resnet_imagenet.evaluate import evaluate
from resnet_imagenet.inputs import Inputs
from resnet_imagenet.method import HALF
from resnet_imagenet.settings import TrainSettings
from resnet_imagenet.state import Trained, identity
from trainkit import metrics, outputs, session
from trainkit.journal import Evaluation, Words
from trainkit.outputs import Outputs
from trainkit.ranks import share
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.torch import optim, precision
from trainkit.torch.profile import Profile
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy

DALI = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")  # a container image has one of these packages
PACKAGES = ("torch", *DALI, "numpy", "trainkit", "resnet-imagenet")
WORDS = Words(
    losses={metrics.TRAIN_LOSS: "loss"},
    rates={metrics.LEARNING_RATE: "lr"},
    unit="img/s",
    advice="a lower --base-lr or a longer warm-up may help",
)


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    strategy = start(
        settings.strategy, device=settings.device, backend=settings.backend,
        compression=settings.compression,
    )
    folder = settings.out
    assert folder is not None  # noqa: S101 - `settings.check` refuses None
    with strategy.explained(), StopFlag() as stop:
        if session.has_finished(folder, settings.resume, strategy):
            return
        work = share(settings.ranks, strategy.size)
        settings = dataclasses.replace(
            settings, precision=precision.settle(settings.precision, strategy),
            batch_size_per_rank=settings.batch_size_per_rank * work,
            accumulation=settings.accumulation * work,
        )
        precision.prepare(
            settings.precision, strategy.device, seed=settings.seed,
            deterministic=settings.deterministic,
        )
        data = inputs.open_inputs(settings, strategy)
        method.check(settings, data.train.steps, strategy.device)
        if strategy.is_main and (note := method.warmup_note(settings, data.train.steps)):
            print(note)
        network = method.build(settings, data, strategy)
        out = outputs.open_outputs(
            folder, settings.resume, identity(settings, data, strategy), strategy=strategy,
            keep=settings.keep, packages=PACKAGES, warn=print,
        )
        with out.log:
            Training(settings, strategy, data, network, out, stop).run()
        strategy.close()


class Training:
    """The loop over epochs and steps."""

    def __init__(
        self, settings: TrainSettings, strategy: TorchStrategy, data: Inputs, network: nn.Module,
        out: Outputs, stop: StopFlag,
    ) -> None:
        self.settings, self.strategy, self.data = settings, strategy, data
        self.batch = settings.batch_size_per_rank * strategy.size
        self.rate = method.learning_rate(settings, self.batch, data.train.steps)
        average = optim.moving_average(network, settings.ema_decay) if settings.ema_decay else None
        if settings.compile != "off":
            cache = settings.compile_cache or method.given_cache()
            cache = cache or outputs.own_folder(out.folder / "compile-cache")
            method.compile_network(network, settings.compile, cache)
        self.model = strategy.distribute(network)
        self.optimizer = method.make_optimizer(network, settings)
        self.scaler = torch.amp.GradScaler(
            strategy.device.type, enabled=settings.precision == "fp16"
        )
        self.trained = Trained(
            settings, data, strategy, network, self.optimizer, average, self.scaler
        )
        course = method.course(settings, data.train.steps)
        self.session = Session(
            out, strategy, stop, course, WORDS, self.trained, Profile(settings.profile, strategy)
        )
        data.bad.tell = self.session.journal.bad_record
        if out.state is not None:
            data.bad.merge(out.state["bad_records"])

    def run(self) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        with self.session.running():
            while not self.session.is_over:
                self.run_epoch()

    def run_epoch(self) -> None:
        """Train the remaining steps of the epoch; evaluate and write a checkpoint at its end."""
        self.session.begin_epoch()
        batches = self.data.train.epoch(self.session.progress.epoch, self.session.progress.step)
        while self.session.has_steps:
            self.train_step(batches)
        for bad_records in self.strategy.gather(self.data.bad.found):
            self.data.bad.merge(bad_records)  # the limit applies to the sum over all ranks
        self.session.end_epoch(self.evaluate)

    def train_step(self, batches: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Make one update: forward and backward pass, averages over the ranks, optimizer step."""
        images, labels = self.session.next_batch(batches)
        progress, average = self.session.progress, self.trained.average
        rate = self.rate(progress.steps_done)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        count = min(self.batch, self.data.train.samples - progress.step * self.batch)
        loss = self.compute_gradients(images, labels, count)
        stop = loss.new_full((), self.session.stop_asked)
        sums = self.strategy.start_sum(torch.stack([loss, stop]))
        with self.strategy.averaged():
            self.scaler.step(self.optimizer)
        self.scaler.update()
        if average is not None:
            average.update_parameters(self.trained.network)
        self.session.finish_step(count, sums, {metrics.LEARNING_RATE: rate})

    def compute_gradients(self, images: Tensor, labels: Tensor, count: int) -> Tensor:
        """Accumulate the gradients of the mean loss over the `count` images of all ranks.

        The strategy averages over the ranks. Therefore each rank contributes the sum of its losses,
        multiplied by ranks / `count`.

        Args:
            images: images of this rank, (N, C, H, W).
            labels: labels of these images, (N,).
            count: number of images of all ranks.

        Returns:
            The sum of this rank's losses, a scalar tensor.
        """
        device, half = self.strategy.device, HALF.get(self.settings.precision)
        self.model.train()
        self.optimizer.zero_grad()
        micro_batches = self.settings.accumulation
        total = torch.zeros((), dtype=torch.float64, device=device)
        pairs = zip(
            images.tensor_split(micro_batches), labels.tensor_split(micro_batches), strict=True
        )
        for number, (micro_batch, classes) in enumerate(pairs, 1):
            with self.strategy.backward(self.model, last=number == micro_batches):
                with torch.autocast(device.type, half, enabled=half is not None):
                    logits = self.model(micro_batch.to(device, non_blocking=True))
                loss = method.summed_cross_entropy(
                    logits, classes.to(device, non_blocking=True), self.settings.label_smoothing
                )
                scaled = self.scaler.scale(loss * (self.strategy.size / count))
                scaled.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def evaluate(self) -> Evaluation | None:
        """Return the scores on the evaluation images, or None if interrupted by a signal."""
        self.trained.before_save()
        batches, half = self.data.evaluation, HALF.get(self.settings.precision)
        with self.session.counter("evaluating", batches.steps, "batches") as done:
            scores = evaluate(
                self.trained.best, batches, half, self.strategy,
                lambda: self.session.stop_asked, done.add,
            )
        if scores is None:
            return None
        values = {
            metrics.EVAL_ACCURACY: scores.top1, metrics.EVAL_ACCURACY_TOP5: scores.top5,
            metrics.EVAL_LOSS: scores.loss,
        }
        return Evaluation(values, dataclasses.asdict(scores), str(scores))
