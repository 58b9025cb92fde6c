"""Report a training: write `metrics.jsonl`, and print progress for the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainkit import metrics
from trainkit.console import Console
from trainkit.energy import Energy, Use
from trainkit.meters import CPU
from trainkit.metrics import MetricsLog
from trainkit.progress import Progress, Window


@dataclass(frozen=True)
class Words:
    """The names of the app's measurements in `metrics.jsonl` and on the console.

    Attributes:
        losses: metric key of each loss -> name on the console, in the order in which the app passes
            the sums of the losses to `Session.finish_step`.
        rates: metric key of each rate, such as the learning rate -> name on the console.
        unit: unit of the throughput, such as img/s.
        advice: remedy that is suggested if a loss is not finite.
        by_speed: metric key -> factor, for metrics whose value is the throughput times a factor.
        waits: whether the loop measures how long a step waits for data and for other ranks.
    """

    losses: Mapping[str, str]
    rates: Mapping[str, str]
    unit: str
    advice: str
    by_speed: Mapping[str, float] = field(default_factory=dict)
    waits: bool = True


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        values: metric key -> score.
        result: key of `result.json` -> score.
        text: description of the scores for the console.
    """

    values: Mapping[str, float]
    result: Mapping[str, float]
    text: str


class Journal:
    """The report of a training: its metrics are logged, and printed for the user.

    Args:
        log: the metrics; only rank 0 writes them.
        console: the console of rank 0.
        words: names of the app's measurements.
        epochs: epochs of the whole training.
        last_step: steps of the whole training.
        energy: the energy meters of the job, or None if the loop does not measure energy.
    """

    def __init__(
        self, log: MetricsLog, console: Console, words: Words, epochs: int, last_step: int,
        energy: Energy | None = None,
    ) -> None:
        self.log, self.console, self.words, self._energy = log, console, words, energy
        self.epochs, self.last_step = epochs, last_step

    def began(self, facts: Mapping[str, int], ranks: int) -> None:
        """Log the start of a training on `ranks` ranks, and `facts` (metric key -> value)."""
        self.log.start(metrics.RUN_START, ranks=ranks)
        for key, value in facts.items():
            self.log.event(key, value)

    def resumed(self, progress: Progress, ranks: int) -> None:
        """Log the step at which a training resumes, and the number of ranks."""
        self.log.event(metrics.RESUMED, progress.steps_done, step=progress.steps_done, ranks=ranks)
        self.console.line(f"resuming from step {progress.steps_done} of {self.last_step}")

    def stepped(self, progress: Progress, rates: Mapping[str, float]) -> None:
        """Log the mean losses and the throughput since the last call, and reset their sums.

        `rates` are further values of the last step, such as its learning rate.
        """
        window, progress.window = progress.window, Window()
        means = [total / window.samples for total in window.losses]
        losses = dict(zip(self.words.losses, means, strict=True))
        speed = window.samples / window.seconds
        for key, value in (losses | dict(rates)).items():
            self.log.event(key, value, **progress.where)
        self.log.event(metrics.THROUGHPUT, speed, unit=self.words.unit, **progress.where)
        for key, factor in self.words.by_speed.items():
            self.log.event(key, speed * factor, **progress.where)
        if self.words.waits:
            self.log.event(metrics.DATA_WAIT, window.waiting / window.seconds, **progress.where)
            communication = window.communicating / window.seconds
            self.log.event(metrics.COMMUNICATION, communication, **progress.where)
        self._log_energy(progress, window)
        progress.seconds += window.seconds
        words = {**self.words.losses, **self.words.rates}
        values = (losses | dict(rates)).items()
        shown = [
            f"{words[key]} {value:.4f}" if isinstance(value, float) else f"{words[key]} {value}"
            for key, value in values
        ]
        pace = f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"
        self.console.progress("  ".join([
            f"epoch {progress.epoch + 1}/{self.epochs}",
            f"step {progress.steps_done}/{self.last_step}",
            *shown, f"{pace} {self.words.unit}",
        ]))

    def _log_energy(self, progress: Progress, window: Window) -> None:
        """Log energy and power since the last log line; add the energy to the training's total."""
        for kind, use in window.energy.items():
            progress.energy.setdefault(kind, Use()).add(use)
        if self._energy is None or self._energy.kind not in window.energy:
            return
        kind = self._energy.kind
        if kind in self._energy.not_readable:
            return
        use, where = window.energy[kind], progress.where
        self.log.event(metrics.INTERVAL_ENERGY, use.total, unit="J", seconds=use.seconds,
                       devices=use.joules, **where)
        self.log.event(metrics.POWER, use.watts, unit="W", **where)

    def bad_record(self, text: str) -> None:
        """Report a tolerated record that cannot be decoded."""
        self.log.event(metrics.BAD_RECORD, text)
        self.console.line(f"warning: {text}; another record takes its place")

    def evaluated(self, progress: Progress, found: Evaluation) -> None:
        """Log the scores and the end of an evaluation, and print the scores."""
        for key, value in found.values.items():
            self.log.event(key, value, **progress.where)
        self.log.stop(metrics.EVAL_STOP, **progress.where)
        progress.scores = dict(found.result)
        self.console.line(f"epoch {progress.epoch + 1}/{self.epochs}  {found.text}")

    def ended(self, progress: Progress, memory: Sequence[int]) -> dict[str, Any]:
        """Log the successful end; return the entries that every `result.json` contains.

        Args:
            progress: progress of the training.
            memory: peak memory of each rank, in bytes.
        """
        # The sum includes the steps after the last log line.
        seconds = progress.seconds + progress.window.seconds
        self.log.event(metrics.TRAINING_SECONDS, seconds, **progress.where)
        self.log.event(metrics.PEAK_MEMORY, max(memory), **progress.where, ranks=list(memory))
        if self._energy is not None:
            self._log_total_energy(progress, self._energy)
        self.log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=progress.steps_done)
        return {
            "status": metrics.SUCCESS,
            "steps": progress.steps_done,
            "epochs": progress.epoch + progress.step / progress.steps_per_epoch,
            "training_seconds": seconds,
            "evaluation": progress.scores or None,
        }

    def _log_total_energy(self, progress: Progress, meters: Energy) -> None:
        """Log the energy of the whole training for each kind of device, or why it is unknown."""
        for kind in {meters.kind: None, CPU: None}:
            use, where = Use(), progress.where
            for part in (progress.energy, progress.window.energy):
                use.add(part.get(kind, Use()))
            trains = kind == meters.kind
            reason = meters.not_readable.get(kind)
            if reason is None and use.steps != progress.steps_done:
                reason = f"measured in {use.steps} of {progress.steps_done} steps only"
            if reason is not None:
                keys = metrics.OF_ENERGY if trains else (metrics.HOST_ENERGY,)
                self.log.event(metrics.NOT_READABLE, reason, keys=list(keys), **where)
            elif trains:
                self.log.event(metrics.ENERGY, use.total, unit="J", devices=use.joules, **where)
                each = {name: joules / use.samples for name, joules in use.joules.items()}
                self.log.event(metrics.ENERGY_PER_SAMPLE, use.per_sample, unit="J",
                               samples=use.samples, devices=each, **where)
                each = {name: joules / use.seconds for name, joules in use.joules.items()}
                self.log.event(metrics.MEAN_POWER, use.watts, unit="W", seconds=use.seconds,
                               devices=each, **where)
            else:
                self.log.event(metrics.HOST_ENERGY, use.total, unit="J", devices=use.joules,
                               **where)
