"""Fit a line through points that lie around 2x + 1: gradient descent on the squared error."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from slope.settings import TrainSettings
from trainkit import metrics, outputs, session
from trainkit.journal import Evaluation, Words
from trainkit.outputs import Outputs
from trainkit.parts import Parts
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.torch import parts
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy
from trainkit.training import Course

SLOPE, START, SPREAD = 2.0, 1.0, 0.1
EPOCH = 100
"""Steps of an epoch, after which the line is evaluated."""
FREE = {"out", "resume", "checkpoint_every", "log_every"}
"""Settings that may change when a training resumes."""
WORDS = Words({"train_loss": "loss"}, {}, "points/s", "a lower --base-lr may help")


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`."""
    ranks, folder = start(settings.strategy, device=settings.device), Path(settings.out or "")
    with ranks.explained(), StopFlag() as stop:
        if session.has_finished(folder, settings.resume, ranks):
            return
        own = dataclasses.asdict(settings).items()
        identity = {key: value for key, value in own if key not in FREE} | {"ranks": ranks.size}
        out = outputs.open_outputs(folder, settings.resume, identity, strategy=ranks, keep=2,
                                   packages=("torch", "numpy", "trainkit"), warn=print)
        with out.log:
            Training(settings, ranks, out, stop).run()
        ranks.close()


class Training:
    """The training loop, and its state for checkpoints (`trainkit.training.Training`)."""

    def __init__(
        self, settings: TrainSettings, ranks: TorchStrategy, out: Outputs, stop: StopFlag
    ) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.ranks = settings, ranks
        self.batch = settings.batch_size_per_rank * ranks.size
        self.line = nn.Linear(1, 1).to(ranks.device)
        self.optimizer = torch.optim.SGD(self.line.parameters(), settings.base_lr)
        ranks.distribute(self.line, overlap=False)
        course = Course(
            EPOCH, settings.steps, settings.steps, log_every=settings.log_every,
            checkpoint_every=settings.checkpoint_every, eval_every=1,
        )
        self.session = Session(out, ranks, stop, course, WORDS, self)

    def run(self) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        with self.session.running():
            while not self.session.is_over:
                self.session.begin_epoch()
                batches = self.batches()
                while self.session.has_steps:
                    self.train_step(batches)
                self.session.end_epoch(self.evaluate)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this rank's part of each global batch; only seed and step determine the batch."""
        step = self.session.progress.steps_done
        while True:
            draw = np.random.default_rng([self.settings.seed, step])
            x = draw.uniform(-1, 1, (self.batch, 1))
            y = SLOPE * x + START + draw.normal(0, SPREAD, x.shape)
            both = torch.tensor(np.stack([x, y]), dtype=torch.float32)
            own = both.chunk(self.ranks.size, dim=1)[self.ranks.rank].to(self.ranks.device)
            yield own[0], own[1]
            step += 1

    def train_step(self, batches: Iterator[tuple[Tensor, Tensor]]) -> None:
        """Update the line with the gradient of the mean squared error of the global batch."""
        x, y = self.session.next_batch(batches)
        loss = nn.functional.mse_loss(self.line(x), y)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        with self.ranks.averaged(self.line):
            self.optimizer.step()
        sums = torch.stack([loss.detach() * len(x), loss.new_tensor(self.session.stop_asked)])
        self.session.finish_step(self.batch, self.ranks.start_sum(sums), {})

    def evaluate(self) -> Evaluation:
        """Return the error of the line: the sum of the absolute errors of slope and start."""
        error = abs(self.line.weight.item() - SLOPE) + abs(self.line.bias.item() - START)
        return Evaluation({"eval_error": error}, {"error": error}, f"error {error:.4f}")

    # The methods that a session calls: `trainkit.training.Training`.

    def parts(self) -> Parts:
        """Return what the steps change and a checkpoint must save: the line and the optimizer."""
        return parts.parts(line=self.line, optimizer=self.optimizer)

    def facts(self) -> dict[str, int]:
        """Return the values that the metrics log records once, at the start."""
        return {metrics.SEED: self.settings.seed, metrics.GLOBAL_BATCH_SIZE: self.batch}

    def digest(self) -> str:
        """Return a digest of the weights, which must be equal on all ranks."""
        return parts.digest([self.line])

    def before_save(self) -> None:
        """Do nothing: no rank has state of its own."""

    def own_state(self) -> dict[str, Any]:
        """Return an empty mapping: a checkpoint needs no state besides `parts` and the progress."""
        return {}

    def own_result(self) -> dict[str, Any]:
        """Return the slope and the intercept (`start`) of the line for `result.json`."""
        return {"slope": self.line.weight.item(), "start": self.line.bias.item()}
