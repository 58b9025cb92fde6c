"""Train FutureGAN: the next frames of a video, by a GAN that grows from 4x4 pixels.

Reproduces, with the settings of `recipes/futuregan/`: Aigner and Koerner, "FutureGAN:
Anticipating the Future Frames of Video Sequences using Spatio-Temporal 3d Convolutions in
Progressively Growing GANs", arXiv:1810.01325: six frames of 128x128 pixels from six.

Method: a generator of 3d convolutions sees all frames of the past at once and makes all of the
future; a discriminator gives past and future together a score. Both begin with frames of 4x4
pixels; a new resolution is faded in over some epochs and then trained for some more. A step
updates the discriminator once, then the generator, by Wasserstein GAN with gradient penalty
(arXiv:1704.00028) and Adam without momentum.

Better than the published program: ranks share one loader, losses and the deviation over the
minibatch are of the global batch, the moving average of the generator is evaluated, and a
training goes on from any step to the same bits. The loop is in this file, the formulas are in
`method.py`, the networks in `model.py`, what is trained when in `growth.py`.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from futuregan import inputs, judging, method
from futuregan.clips import Batch
from futuregan.growth import Growth, Moment
from futuregan.inputs import Inputs
from futuregan.method import HALF
from futuregan.settings import TrainSettings
from futuregan.state import Trained, identity
from trainkit import metrics, outputs, session
from trainkit.journal import Evaluation, Words
from trainkit.outputs import Outputs
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.torch import precision
from trainkit.torch.profile import Profile
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy

PACKAGES = ("torch", "numpy", "pillow", "trainkit", "futuregan")
WORDS = Words(
    losses={
        "critic_loss": "critic", "generator_loss": "generator", "wasserstein": "distance",
        "gradient_penalty": "penalty", "reconstruction_loss": "error",
    },
    rates={metrics.LEARNING_RATE: "lr", "resolution": "pixels", "fade_in": "fade"},
    unit="clips/s",
    advice="a lower --base-lr or a larger --penalty may help",
)


def main(settings: TrainSettings) -> None:
    """Train as `settings` say; everything it writes is in `settings.out`.

    Raises:
        AppError: with the exit code of the app contract.
    """
    strategy = start(
        settings.strategy, device=settings.device, backend=settings.backend,
        compression=settings.compression,
    )
    folder = settings.out
    assert folder is not None  # noqa: S101 - `settings.check` saw to it
    with strategy.explained(), StopFlag() as stop:
        if session.has_finished(folder, settings.resume, strategy):
            return
        settings = dataclasses.replace(
            settings, precision=precision.settle(settings.precision, strategy)
        )
        precision.prepare(
            settings.precision, strategy.device, seed=settings.seed, deterministic=False
        )
        growth = method.growth(settings)
        method.check_groups(settings, growth, strategy.size)
        data = inputs.open_inputs(settings, strategy)
        out = outputs.open_outputs(
            folder, settings.resume, identity(settings, data, strategy), strategy=strategy,
            keep=settings.keep, packages=PACKAGES, warn=print,
        )
        with out.log:
            Training(settings, strategy, growth, data, out, stop).run()
        strategy.close()


class Training:
    """The loop over epochs and steps."""

    def __init__(
        self, settings: TrainSettings, strategy: TorchStrategy, growth: Growth, data: Inputs,
        out: Outputs, stop: StopFlag,
    ) -> None:
        self.settings, self.strategy, self.growth, self.data = settings, strategy, growth, data
        self.generator, self.discriminator = method.networks(settings, data.shape, strategy)
        average = copy.deepcopy(self.generator) if settings.ema_decay else None
        pair = {"generator": self.generator, "discriminator": self.discriminator}
        self.optimizers = {name: method.optimizer(one, settings) for name, one in pair.items()}
        self.scalers = {
            name: torch.amp.GradScaler(strategy.device.type, enabled=settings.precision == "fp16")
            for name in pair
        }
        self.trained = Trained(
            settings, data, strategy, self.generator, self.discriminator, average,
            self.optimizers, self.scalers, growth.moment(0, 0, 1),
        )
        course = method.course(settings, growth, lambda batch: data.train.plan(batch).steps)
        profile = Profile(settings.profile, strategy)
        self.session = Session(out, strategy, stop, course, WORDS, self.trained, profile)
        at = self.session.at
        self.trained.moment = growth.moment(at.epoch, max(at.step - 1, 0), at.steps_per_epoch)

    def run(self) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        with self.session.running():
            while not self.session.is_over:
                self.run_epoch()

    def run_epoch(self) -> None:
        """Train the rest of the running epoch, and end it: evaluation, checkpoint."""
        at = self.session.at
        self.session.begin_epoch()
        batches = self.data.train.epoch(at.epoch, at.step, self.growth.phase(at.epoch).batch)
        while self.session.has_steps:
            self.train_step(batches)
        self.session.end_epoch(self.evaluate)

    def train_step(self, batches: Iterator[Batch]) -> None:
        """Make one update of the discriminator, then one of the generator."""
        batch, at = self.session.take(batches), self.session.at
        moment = self.growth.moment(at.epoch, at.step, at.steps_per_epoch)
        rate = method.learning_rate(self.settings, moment)
        device = self.strategy.device
        clips = method.prepared(batch.clips.to(device, non_blocking=True), moment)
        sizes = self.discriminator.spread.parts(len(clips), moment.batch, moment.size)
        between = batch.between.to(device)
        parts = list(zip(torch.split(clips, sizes), torch.split(between, sizes), strict=True))
        # The strategy averages over the ranks, so each contributes its sum times size / count.
        share = self.strategy.size / batch.count
        whole = len(parts) == 1
        drafts = [self.draft(real, moment, keep=whole) for real, _ in parts]
        lost = []
        if at.epoch >= self.settings.pretraining_epochs:
            lost += [
                self.criticise(real, made.detach(), between, moment, share)
                for (real, between), made in zip(parts, drafts, strict=True)
            ]
            self.update("discriminator", rate)
        lost += [
            self.persuade(real, made if whole else self.draft(real, moment), moment, share)
            for (real, _), made in zip(parts, drafts, strict=True)
        ]
        self.update("generator", rate)
        self.trained.moment = moment
        if self.trained.average is not None:
            method.follow(self.trained.average, self.generator, self.settings.ema_decay,
                          at.steps_done, self.data.shape.level(moment.size))
        stop = clips.new_full((1,), self.session.stop_asked, dtype=torch.float64)
        sums = self.strategy.start_sum(torch.cat([torch.stack(lost).sum(0), stop]))
        self.session.made(batch.count, sums, {
            metrics.LEARNING_RATE: rate, "resolution": moment.size, "fade_in": moment.fade,
        })

    def draft(self, real: Tensor, moment: Moment, *, keep: bool = True) -> Tensor:
        """Return real pasts with the futures that the generator makes of them.

        Without `keep`, nothing is kept to go backwards through: the memory of one part is free
        for the next one.
        """
        past = real[:, :, : self.settings.past]
        with torch.set_grad_enabled(keep), self.autocast():
            future = self.generator(past, moment.fade)
        return torch.cat([past, future.float()], 2)

    def criticise(
        self, real: Tensor, made: Tensor, between: Tensor, moment: Moment, share: float
    ) -> Tensor:
        """Add to the discriminator's gradients; return what a step tells of it."""
        settings = self.settings
        with self.autocast():  # both at once: one pass of twice the batch is faster than two
            scores = self.discriminator(torch.cat([real, made]), moment.fade, 2).float()
        of_real, of_made = scores.tensor_split(2)
        losses = method.critic_losses(settings.loss, of_real, of_made)
        penalty = torch.zeros_like(losses)
        if settings.loss == "wgan-gp":
            penalty = method.slope_penalty(
                lambda points: self.discriminator(points, moment.fade), real, made, between
            )
            losses = losses + settings.penalty * penalty
            losses = losses + settings.drift * of_real.flatten().square()
        self.backward("discriminator", losses.sum() * share)
        zero = losses.new_zeros(())
        return torch.stack([
            losses.sum(), zero, (of_real - of_made).sum(), penalty.sum(), zero,
        ]).detach().double()

    def persuade(self, real: Tensor, made: Tensor, moment: Moment, share: float) -> Tensor:
        """Add to the generator's gradients; return what a step tells of it."""
        settings = self.settings
        errors = (made - real)[:, :, settings.past :].square().flatten(1).mean(1)
        losses = settings.reconstruction * errors
        if self.session.at.epoch >= settings.pretraining_epochs:
            with self.autocast():
                scores = self.discriminator(made, moment.fade)
            losses = losses + method.generator_losses(settings.loss, scores)
        self.backward("generator", losses.sum() * share)
        zero = losses.new_zeros(())
        return torch.stack([zero, losses.sum(), zero, zero, errors.sum()]).detach().double()

    def backward(self, name: str, loss: Tensor) -> None:
        """Add the gradients of a loss to the weights of one network, and of no other."""
        network = self.generator if name == "generator" else self.discriminator
        level = self.data.shape.level(self.growth.phase(self.session.at.epoch).size)
        scaled = self.scalers[name].scale(loss)
        scaled.backward(inputs=network.active(level))  # type: ignore[no-untyped-call]

    def update(self, name: str, rate: float) -> None:
        """Make a step of one network."""
        network = self.generator if name == "generator" else self.discriminator
        optimizer, scaler = self.optimizers[name], self.scalers[name]
        for group in optimizer.param_groups:
            group["lr"] = rate
        with self.strategy.averaged(network):
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    def autocast(self) -> torch.autocast:
        """Return the context in which the networks compute in half of the bits, if they do."""
        half = HALF.get(self.settings.precision)
        return torch.autocast(self.strategy.device.type, half, enabled=half is not None)

    def evaluate(self) -> Evaluation | None:
        """Return the scores on held-out clips; None if a signal cut it short."""
        return judging.evaluate(self.trained, self.session)
