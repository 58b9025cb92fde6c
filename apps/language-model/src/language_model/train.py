"""Train a decoder transformer, from the first batch to the last checkpoint.

Method: next-token prediction with GPT-2 or Llama shapes (`shapes.py`), AdamW, linear warm-up and
cosine decay, gradients clipped by their norm (Brown et al., arXiv:2005.14165, appendix B).
This file contains the loop, `model.py` the network, `parallelize.py` its division over the ranks,
`steps.py` the passes of a step, `method.py` the formulas, and `state.py` the content of a
checkpoint. `trainkit` contains the code that all apps share: ranks, metrics, checkpoints, signals.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import torch

from language_model import comparison, initial, inputs, method, states, tokenizer
from language_model.batch import Batch
from language_model.comparison import Yardsticks
from language_model.evaluate import evaluate
from language_model.inputs import Inputs
from language_model.job import Job
from language_model.layout import Layout
from language_model.lora import Lora
from language_model.measures import (
    EVAL_BITS_PER_BYTE,
    EVAL_PERPLEXITY,
    PACKAGES,
    words,
)
from language_model.scaling import LossScale
from language_model.settings import TrainSettings
from language_model.state import Trained, identity
from language_model.steps import Network
from trainkit import metrics, outputs, session
from trainkit.journal import Evaluation
from trainkit.outputs import Outputs
from trainkit.session import Session
from trainkit.signals import StopFlag
from trainkit.torch import mesh, precision, sharded
from trainkit.torch.profile import Profile
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    strategy = start(settings.strategy, device=settings.device, axes=Layout.of(settings).axes)
    folder = settings.out
    assert folder is not None  # noqa: S101 - `settings.check` refuses None
    with strategy.explained(), StopFlag() as stop:
        if session.has_finished(folder, settings.resume, strategy):
            return
        settings = dataclasses.replace(
            settings, precision=precision.settle(settings.precision, strategy)
        )
        layout = Layout.of(settings)
        precision.prepare(
            settings.precision, strategy.device, seed=settings.seed,
            deterministic=settings.deterministic,
        )
        mesh.seed_by_coordinates(settings.seed, strategy)
        first = initial.open_initial(settings, strategy)
        settings = dataclasses.replace(settings, model=first.model)
        data = inputs.open_inputs(settings, first.shape)
        shape = first.fit(data)
        layout.check(shape, strategy.size, data.train.length, settings.batch_size)
        states.check(
            Job(shape, layout, strategy.size, data.train.length, settings.batch_size,
                settings.document_mask, Lora.of(settings)), strategy,
        )
        method.check(settings, data.train.steps)
        out = outputs.open_outputs(
            folder, settings.resume, identity(settings, data, first.digest), strategy=strategy,
            keep=settings.keep, packages=PACKAGES, warn=print,
        )
        with out.log:
            if strategy.is_main and settings.data is not None and data.tokenizer is not None:
                tokenizer.keep(settings.data, data.tokenizer, folder)
            known = comparison.of_training(settings, data, out.state, strategy)
            network = Network(
                shape, layout, strategy, settings.seed, settings.dropout, Lora.of(settings)
            )
            if out.state is None:
                first.load(network)
            Training(settings, strategy, data, network, out, stop, known).run()
        strategy.close()


class Training:
    """The loop over epochs and steps."""

    def __init__(
        self, settings: TrainSettings, strategy: TorchStrategy, data: Inputs, network: Network,
        out: Outputs, stop: StopFlag, yardsticks: Yardsticks | None = None,
    ) -> None:
        self.settings, self.strategy, self.data = settings, strategy, data
        self.network, self.yardsticks = network, yardsticks
        self.optimizer = method.make_optimizer(network, method.AdamW.of(settings))
        self.scale = LossScale(settings.precision == "fp16")
        trained = Trained(
            settings, data, strategy, network, self.optimizer, self.scale, yardsticks
        )
        self.course = method.course(settings, data.train.steps)
        self.session = Session(
            out, strategy, stop, self.course, words(settings, network, data), trained,
            Profile(settings.profile, strategy),
        )

    def run(self) -> None:
        """Train to the end, or to the next step boundary after a signal."""
        with self.session.running():
            while not self.session.is_over:
                self.run_epoch()

    def run_epoch(self) -> None:
        """Train the remaining steps of the epoch; evaluate and write a checkpoint at its end."""
        self.session.begin_epoch()
        progress = self.session.progress
        batches = self.data.train.epoch(progress.epoch, progress.step, self.network.part)
        while self.session.has_steps:
            self.train_step(batches)
        self.session.end_epoch(self.evaluate)

    def train_step(self, batches: Iterator[Batch]) -> None:
        """Make one update of the weights: passes, gradient norm, clipping and optimizer step."""
        batch, progress = self.session.next_batch(batches), self.session.progress
        rate = method.learning_rate(self.settings, progress.steps_done, self.course.planned)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        count = self.data.train.targets(progress.epoch, progress.step)
        self.optimizer.zero_grad()
        # The replicas average their gradients, and each adds the losses of its own tokens.
        factor = self.scale.factor
        loss = self.network.gradients(batch, factor * self.network.replicas / count)
        norm = sharded.gradient_norm(
            self.network.parameters, self.network.places, self.strategy
        ) / factor
        finite = not self.scale.enabled or bool(norm.isfinite())
        shown = torch.where(norm.isfinite() | (not self.scale.enabled), norm, 0.0)
        stop = loss.new_full((), self.session.stop_asked)
        sums = self.strategy.start_sum(
            torch.stack([loss, shown * count / self.strategy.size, stop])
        )
        sharded.scale_gradients(
            self.network.parameters, method.clipping(norm, self.settings.clip) / factor
        )
        if finite:
            self.optimizer.step()
        self.scale.update(finite)
        self.session.finish_step(count, sums, {metrics.LEARNING_RATE: rate})

    def evaluate(self) -> Evaluation | None:
        """Return the scores on the evaluation split, or None if interrupted by a signal."""
        batches = self.data.evaluation
        with self.session.counter("evaluating", batches.steps, "batches") as done:
            scores = evaluate(
                self.network, batches, lambda: self.session.stop_asked, done.add
            )
        if scores is None:
            return None
        values = {
            metrics.EVAL_LOSS: scores.loss, EVAL_PERPLEXITY: scores.perplexity,
            EVAL_BITS_PER_BYTE: scores.bits_per_byte,
        }
        result, text = dataclasses.asdict(scores), str(scores)
        if self.yardsticks is not None:
            more = self.yardsticks.scores(scores.bits_per_byte)
            values |= {f"eval_{name}": value for name, value in more.items()}
            result, text = result | more, f"{text} ({self.yardsticks})"
        return Evaluation(values, result, text)
