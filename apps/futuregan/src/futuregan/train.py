"""Train FutureGAN, a GAN that predicts the next frames of a video and grows from 4x4 pixels.

This app reproduces, with the settings of `recipes/futuregan/`: Aigner and Koerner, "FutureGAN:
Anticipating the Future Frames of Video Sequences using Spatio-Temporal 3d Convolutions in
Progressively Growing GANs", arXiv:1810.01325. The paper predicts six frames of
128x128 pixels from six input frames.

Method: a generator with 3d convolutions maps all input frames at once to all future frames. A
discriminator maps a clip of input and future frames to a score. Both networks begin with frames of
4x4 pixels. Each new resolution is faded in over some epochs, and then trained for more epochs. A
step updates the discriminator once and then the generator, with the loss of the Wasserstein GAN
with gradient penalty (arXiv:1704.00028) and Adam without momentum.

Differences from the published program: the ranks share one loader; losses and the minibatch
standard deviation are computed over the global batch; the evaluation uses a moving average of the
generator; a training resumes from any step with bit-identical weights. This file contains the loop,
`method.py` the formulas, `model.py` the networks, and `growth.py` the schedule of the resolutions.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator

import torch
from torch import Tensor

from futuregan import inputs, method, training_evaluation
from futuregan.clips import Batch
from futuregan.growth import Growth, GrowthStage
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
            self.optimizers, self.scalers, growth.stage(0, 0, 1),
        )
        course = method.course(settings, growth, lambda batch: data.train.plan(batch).steps)
        profile = Profile(settings.profile, strategy)
        self.session = Session(out, strategy, stop, course, WORDS, self.trained, profile)
        progress = self.session.progress
        self.trained.stage = growth.stage(
            progress.epoch, max(progress.step - 1, 0), progress.steps_per_epoch
        )

    def run(self) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        with self.session.running():
            while not self.session.is_over:
                self.run_epoch()

    def run_epoch(self) -> None:
        """Train the remaining steps of the epoch; evaluate and write a checkpoint at its end."""
        progress = self.session.progress
        self.session.begin_epoch()
        batch = self.growth.phase(progress.epoch).batch
        batches = self.data.train.epoch(progress.epoch, progress.step, batch)
        while self.session.has_steps:
            self.train_step(batches)
        self.session.end_epoch(self.evaluate)

    def train_step(self, batches: Iterator[Batch]) -> None:
        """Update the discriminator once, then the generator."""
        batch, progress = self.session.next_batch(batches), self.session.progress
        stage = self.growth.stage(progress.epoch, progress.step, progress.steps_per_epoch)
        rate = method.learning_rate(self.settings, stage)
        device = self.strategy.device
        clips = method.prepare_clips(batch.clips.to(device, non_blocking=True), stage)
        sizes = self.discriminator.minibatch_stddev.split_sizes(len(clips), stage.batch, stage.size)
        interpolation = batch.interpolation.to(device)
        micro_batches = list(
            zip(torch.split(clips, sizes), torch.split(interpolation, sizes), strict=True)
        )
        # The strategy averages over the ranks, so each rank multiplies its sum by ranks / clips.
        weight = self.strategy.size / batch.count
        is_whole = len(micro_batches) == 1
        generated = [self.generate(real, stage, keep=is_whole) for real, _ in micro_batches]
        loss_sums = []
        if progress.epoch >= self.settings.pretraining_epochs:
            loss_sums += [
                self.critic_step(real, fake.detach(), interpolation, stage, weight)
                for (real, interpolation), fake in zip(micro_batches, generated, strict=True)
            ]
            self.update("discriminator", rate)
        loss_sums += [
            self.generator_step(
                real, fake if is_whole else self.generate(real, stage), stage, weight
            )
            for (real, _), fake in zip(micro_batches, generated, strict=True)
        ]
        self.update("generator", rate)
        self.trained.stage = stage
        if self.trained.average is not None:
            method.update_ema(self.trained.average, self.generator, self.settings.ema_decay,
                              progress.steps_done, self.data.shape.level(stage.size))
        stop = clips.new_full((1,), self.session.stop_asked, dtype=torch.float64)
        sums = self.strategy.start_sum(torch.cat([torch.stack(loss_sums).sum(0), stop]))
        self.session.finish_step(batch.count, sums, {
            metrics.LEARNING_RATE: rate, "resolution": stage.size, "fade_in": stage.fade,
        })

    def generate(self, real: Tensor, stage: GrowthStage, *, keep: bool = True) -> Tensor:
        """Return real input frames followed by the future frames that the generator predicts.

        Args:
            real: clips (n, C, T, H, W) in -1..1.
            stage: stage of the growth.
            keep: whether a backward pass through the result follows. If not, PyTorch records no
                graph, and each micro-batch can reuse the memory of the previous one.
        """
        past = real[:, :, : self.settings.past]
        with torch.set_grad_enabled(keep), self.autocast():
            future = self.generator(past, stage.fade)
        return torch.cat([past, future.float()], 2)

    def critic_step(
        self, real: Tensor, fake: Tensor, interpolation: Tensor, stage: GrowthStage, weight: float
    ) -> Tensor:
        """Add the gradients of a micro-batch to the discriminator; return sums for the metrics.

        Args:
            real: clips (n, C, T, H, W) in -1..1.
            fake: the same clips with predicted future frames.
            interpolation: positions of the gradient penalty between real (0) and fake (1), (n,).
            stage: stage of the growth.
            weight: factor of the summed losses: number of ranks / clips of the global batch.

        Returns:
            The sums over the clips, (5,): critic loss, 0 for the generator loss, Wasserstein
            estimate, gradient penalty, and 0 for the mean squared error.
        """
        settings = self.settings
        with self.autocast():  # one pass over real and fake clips is faster than two passes
            scores = self.discriminator(torch.cat([real, fake]), stage.fade, 2).float()
        real_scores, fake_scores = scores.tensor_split(2)
        losses = method.critic_losses(settings.loss, real_scores, fake_scores)
        penalty = torch.zeros_like(losses)
        if settings.loss == "wgan-gp":
            penalty = method.gradient_penalty(
                lambda points: self.discriminator(points, stage.fade), real, fake, interpolation
            )
            losses = losses + settings.penalty * penalty
            losses = losses + settings.drift * real_scores.flatten().square()
        self.backward("discriminator", losses.sum() * weight)
        zero = losses.new_zeros(())
        return torch.stack([
            losses.sum(), zero, (real_scores - fake_scores).sum(), penalty.sum(), zero,
        ]).detach().double()

    def generator_step(
        self, real: Tensor, fake: Tensor, stage: GrowthStage, weight: float
    ) -> Tensor:
        """Add the gradients of a micro-batch to the generator; return sums for the metrics.

        Args:
            real: clips (n, C, T, H, W) in -1..1.
            fake: the same clips with predicted future frames.
            stage: stage of the growth.
            weight: factor of the summed losses: number of ranks / clips of the global batch.

        Returns:
            The sums over the clips in the order of `critic_step`, (5,). Only the generator loss and
            the mean squared error are not 0.
        """
        settings = self.settings
        errors = (fake - real)[:, :, settings.past :].square().flatten(1).mean(1)
        losses = settings.reconstruction * errors
        if self.session.progress.epoch >= settings.pretraining_epochs:
            with self.autocast():
                scores = self.discriminator(fake, stage.fade)
            losses = losses + method.generator_losses(settings.loss, scores)
        self.backward("generator", losses.sum() * weight)
        zero = losses.new_zeros(())
        return torch.stack([zero, losses.sum(), zero, zero, errors.sum()]).detach().double()

    def backward(self, name: str, loss: Tensor) -> None:
        """Compute the gradients of a loss; add them to `.grad` of the weights of one network.

        Only the weights that the network uses at the current level (resolution) get
        gradients. `name` is "generator" or "discriminator".
        """
        network = self.generator if name == "generator" else self.discriminator
        level = self.data.shape.level(self.growth.phase(self.session.progress.epoch).size)
        scaled = self.scalers[name].scale(loss)
        scaled.backward(inputs=network.active(level))  # type: ignore[no-untyped-call]

    def update(self, name: str, rate: float) -> None:
        """Average the gradients of one network over the ranks, and step its optimizer.

        `name` is "generator" or "discriminator", and `rate` the learning rate.
        """
        network = self.generator if name == "generator" else self.discriminator
        optimizer, scaler = self.optimizers[name], self.scalers[name]
        for group in optimizer.param_groups:
            group["lr"] = rate
        with self.strategy.averaged(network):
            scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    def autocast(self) -> torch.autocast:
        """Return the autocast context for the networks, which is disabled in fp32 and tf32."""
        half = HALF.get(self.settings.precision)
        return torch.autocast(self.strategy.device.type, half, enabled=half is not None)

    def evaluate(self) -> Evaluation | None:
        """Return the scores on the evaluation clips, or None if interrupted by a signal."""
        return training_evaluation.evaluate(self.trained, self.session)
