"""Train a generator of points against a critic: Wasserstein GAN with gradient penalty.

The method is algorithm 1 of Gulrajani et al., arXiv:1704.00028, with one update of the critic for
each update of the generator, and with Adam without momentum, as in the publication. Before step
`--grow-at`, the generator gets one more residual block. A loss is the mean over the global batch,
for any number of ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from toy_two_networks import networks, points
from toy_two_networks.settings import TrainSettings
from trainkit import metrics, outputs, session
from trainkit.journal import Evaluation, Words
from trainkit.outputs import Outputs
from trainkit.parts import Parts
from trainkit.progress import Progress
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.torch import parts
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy
from trainkit.training import Course

EPOCH = 100
"""Number of steps between two evaluations."""

FREE = {"out", "resume", "checkpoint_every", "log_every"}
"""Settings that may change when a training is resumed."""
PACKAGES = ("torch", "numpy", "trainkit", "toy-two-networks")
WORDS = Words(
    losses={"critic_loss": "critic", "generator_loss": "generator"}, rates={}, unit="points/s",
    advice="a lower --base-lr may help",
)

Batch = tuple[Tensor, Tensor, Tensor]


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    assert settings.out is not None
    ranks = start(settings.strategy, device=settings.device, compression=settings.compression)
    with ranks.explained(), StopFlag() as stop:
        if session.has_finished(settings.out, settings.resume, ranks):
            return
        torch.manual_seed(settings.seed)
        torch.use_deterministic_algorithms(True)
        out = outputs.open_outputs(
            settings.out, settings.resume, identity(settings, ranks), strategy=ranks, keep=2,
            packages=PACKAGES, warn=print,
        )
        with out.log:
            Training(settings, ranks, out, stop).run()
        ranks.close()


def identity(settings: TrainSettings, ranks: TorchStrategy) -> dict[str, Any]:
    """Return the settings that must be equal in a checkpoint and a training that resumes it."""
    values = dataclasses.asdict(settings)
    return {key: values[key] for key in values if key not in FREE} | {"ranks": ranks.size}


class Training:
    """The training loop, and the state that checkpoints keep."""

    def __init__(
        self, settings: TrainSettings, ranks: TorchStrategy, out: Outputs, stop: StopFlag
    ) -> None:
        self.settings, self.ranks = settings, ranks
        self.batch = settings.batch_size_per_rank * ranks.size
        self.generator = networks.Generator().to(ranks.device)
        self.critic = networks.critic().to(ranks.device)
        self.networks = {"critic": self.critic, "generator": self.generator}
        self.optimizers = {
            name: torch.optim.Adam(network.parameters(), lr=settings.base_lr, betas=(0.0, 0.9))
            for name, network in self.networks.items()
        }
        for network in self.networks.values():
            ranks.distribute(network, overlap=False)
        # A checkpoint of the grown generator needs one that has grown.
        begin = 0 if out.state is None else Progress.of(out.state["progress"]).steps_done
        if begin > settings.grow_at:
            self.grow()
        course = Course(
            EPOCH, settings.steps, settings.steps, log_every=settings.log_every,
            checkpoint_every=settings.checkpoint_every, eval_every=1,
        )
        self.session = Session(out, ranks, stop, course, WORDS, self)

    def grow(self) -> None:
        """Add the same new block to the generator on all ranks."""
        added = self.generator.grow().to(self.ranks.device)
        self.ranks.distribute(self.generator, overlap=False)
        self.optimizers["generator"].add_param_group({"params": list(added.parameters())})

    def run(self) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        with self.session.running():
            while not self.session.is_over:
                self.session.begin_epoch()
                batches = self.batches()
                while self.session.has_steps:
                    self.train_step(batches)
                self.session.end_epoch(self.evaluate)

    def batches(self) -> Iterator[Batch]:
        """Yield this rank's part of each global batch, beginning with the next step."""
        step = self.session.progress.steps_done
        while True:
            drawn = points.batch(self.settings.seed, step, self.batch)
            real, noise, between = (
                tensor.chunk(self.ranks.size)[self.ranks.rank].to(self.ranks.device)
                for tensor in drawn
            )
            yield real, noise, between
            step += 1

    def train_step(self, batches: Iterator[Batch]) -> None:
        """Update the critic, then the generator."""
        if self.session.progress.steps_done == self.settings.grow_at:
            self.grow()
        real, noise, between = self.session.next_batch(batches)
        made = self.generator(noise)
        fake = made.detach()
        seen = networks.slopes(self.critic, fake + between * (real - fake))
        critic_loss = (
            self.critic(fake) - self.critic(real)
        ).mean() + self.settings.penalty * (seen - 1).square().mean()
        self.update("critic", critic_loss)
        generator_loss = -self.critic(made).mean()
        self.update("generator", generator_loss)
        stop = made.new_full((), self.session.stop_asked)
        losses = [loss.detach() * len(real) for loss in (critic_loss, generator_loss)]
        self.session.finish_step(self.batch, self.ranks.start_sum(torch.stack([*losses, stop])), {})

    def update(self, name: str, loss: Tensor) -> None:
        """Update one network by the gradient of `loss`, averaged over all ranks."""
        network = self.networks[name]
        network.zero_grad()
        loss.backward(inputs=list(network.parameters()))  # type: ignore[no-untyped-call]
        with self.ranks.averaged(network):
            self.optimizers[name].step()

    def evaluate(self) -> Evaluation:
        """Return the distance of generated and held-out points; each rank evaluates all points."""
        real, noise, _ = points.batch(self.settings.seed + 1, 0, points.HELD_OUT)
        with torch.no_grad():
            made = self.generator(noise.to(self.ranks.device)).cpu()
        found = points.distance(real, made)
        return Evaluation({"eval_distance": found}, {"distance": found}, f"distance {found:.4f}")

    # What a session asks: `trainkit.training.Training`.

    def parts(self) -> Parts:
        """Return the objects whose state a checkpoint saves: both networks and their optimizers."""
        return parts.parts(
            **self.networks,
            **{f"{name}_optimizer": one for name, one in self.optimizers.items()},
        )

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        return {metrics.SEED: self.settings.seed, metrics.GLOBAL_BATCH_SIZE: self.batch}

    def digest(self) -> str:
        """Return a digest of the weights."""
        return parts.digest(self.networks.values())

    def before_save(self) -> None:
        """Do nothing, because all ranks have the same state."""

    def own_state(self) -> dict[str, Any]:
        """Return {}, because a checkpoint needs nothing besides `parts` and the progress."""
        return {}

    def own_result(self) -> dict[str, Any]:
        """Return the number of blocks of the generator, for `result.json`."""
        return {"blocks": len(self.generator.blocks)}
