"""What a training tells: metrics.jsonl, and lines or a bar for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainkit import metrics
from trainkit.console import Console
from trainkit.metrics import MetricsLog
from trainkit.progress import Progress, Window


@dataclass(frozen=True)
class Words:
    """What an app calls its measurements.

    Attributes:
        losses: key in the metrics -> word on the console, in the order of the sums of a step.
        rates: key in the metrics -> word on the console.
        unit: of the throughput, such as img/s.
        advice: what may help where a loss is not finite.
    """

    losses: Mapping[str, str]
    rates: Mapping[str, str]
    unit: str
    advice: str


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        values: by the keys of the metrics.
        result: the same as `result.json` has it.
        text: the same for people.
    """

    values: Mapping[str, float]
    result: Mapping[str, float]
    text: str


class Journal:
    """Writes the metrics of a training, and shows them.

    Args:
        log: the metrics; those of rank 0 are written.
        console: what people see; of rank 0 only.
        words: what the app calls its measurements.
        epochs: passes over the data in the whole training.
        last_step: steps in it.
    """

    def __init__(
        self, log: MetricsLog, console: Console, words: Words, epochs: int, last_step: int
    ) -> None:
        self.log, self.console, self.words = log, console, words
        self.epochs, self.last_step = epochs, last_step

    def began(self, facts: Mapping[str, int], ranks: int) -> None:
        """Log the start of a training by so many ranks, and `facts` about it."""
        self.log.start(metrics.RUN_START, ranks=ranks)
        for key, value in facts.items():
            self.log.event(key, value)

    def resumed(self, at: Progress, ranks: int) -> None:
        """Log where a training goes on, and by how many ranks."""
        self.log.event(metrics.RESUMED, at.steps_done, step=at.steps_done, ranks=ranks)
        self.console.line(f"going on from step {at.steps_done} of {self.last_step}")

    def stepped(self, at: Progress, rates: Mapping[str, float]) -> None:
        """Log the window since the last call, whose last step had `rates`; begin a new one."""
        window, at.window = at.window, Window()
        means = [total / window.samples for total in window.losses]
        losses = dict(zip(self.words.losses, means, strict=True))
        speed = window.samples / window.seconds
        for key, value in (losses | dict(rates)).items():
            self.log.event(key, value, **at.where)
        self.log.event(metrics.THROUGHPUT, speed, unit=self.words.unit, **at.where)
        self.log.event(metrics.DATA_WAIT, window.waiting / window.seconds, **at.where)
        self.log.event(metrics.COMMUNICATION, window.communicating / window.seconds, **at.where)
        at.seconds += window.seconds
        words = {**self.words.losses, **self.words.rates}
        told = (losses | dict(rates)).items()
        shown = [
            f"{words[key]} {value:.4f}" if isinstance(value, float) else f"{words[key]} {value}"
            for key, value in told
        ]
        pace = f"{speed:.0f}" if speed >= 100 else f"{speed:.3g}"
        self.console.progress("  ".join([
            f"epoch {at.epoch + 1}/{self.epochs}", f"step {at.steps_done}/{self.last_step}",
            *shown, f"{pace} {self.words.unit}",
        ]))

    def bad_record(self, text: str) -> None:
        """Name a record that cannot be decoded and is tolerated."""
        self.log.event(metrics.BAD_RECORD, text)
        self.console.line(f"warning: {text}; another record takes its place")

    def evaluated(self, at: Progress, found: Evaluation) -> None:
        """Log what an evaluation found, whose start was logged before."""
        for key, value in found.values.items():
            self.log.event(key, value, **at.where)
        self.log.stop(metrics.EVAL_STOP, **at.where)
        at.scores = dict(found.result)
        self.console.line(f"epoch {at.epoch + 1}/{self.epochs}  {found.text}")

    def ended(self, at: Progress, memory: Sequence[int]) -> dict[str, Any]:
        """Log the successful end, and what it took; return what every `result.json` has.

        Args:
            at: where it is.
            memory: the most bytes that each rank had.
        """
        seconds = at.seconds + at.window.seconds  # of steps after the last line, too
        self.log.event(metrics.TRAINING_SECONDS, seconds, **at.where)
        self.log.event(metrics.PEAK_MEMORY, max(memory), **at.where, ranks=list(memory))
        self.log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=at.steps_done)
        return {
            "status": metrics.SUCCESS,
            "steps": at.steps_done,
            "epochs": at.epoch + at.step / at.steps_per_epoch,
            "training_seconds": seconds,
            "evaluation": at.scores or None,
        }
