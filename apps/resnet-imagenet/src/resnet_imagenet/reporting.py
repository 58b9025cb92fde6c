"""What a training tells: metrics.jsonl, and lines or a bar for people."""

from __future__ import annotations

import dataclasses
from typing import Any

from resnet_imagenet.bad import BAD_RECORD
from resnet_imagenet.evaluate import Scores
from resnet_imagenet.progress import Progress, Window
from trainkit import metrics
from trainkit.console import Console
from trainkit.metrics import MetricsLog


class Reporter:
    """Writes the metrics of a training, and shows them.

    Args:
        log: the metrics; those of rank 0 are written.
        console: what people see; of rank 0 only.
        epochs: passes over the data in the whole training.
        last_step: steps in it.
    """

    def __init__(self, log: MetricsLog, console: Console, epochs: int, last_step: int) -> None:
        self.log, self.console = log, console
        self.epochs, self.last_step = epochs, last_step

    def began(self, facts: dict[str, int]) -> None:
        """Log the start of a training, and `facts` about it."""
        self.log.start(metrics.RUN_START)
        for key, value in facts.items():
            self.log.event(key, value)

    def resumed(self, at: Progress) -> None:
        """Log where a training goes on."""
        self.log.event(metrics.RESUMED, at.steps_done, step=at.steps_done)
        self.console.line(f"going on from step {at.steps_done} of {self.last_step}")

    def stepped(self, at: Progress, rate: float) -> None:
        """Log the window since the last call, whose last step had this rate; begin a new one."""
        window, at.window = at.window, Window()
        loss, speed = window.loss / window.images, window.images / window.seconds
        self.log.event(metrics.TRAIN_LOSS, loss, **at.where)
        self.log.event(metrics.LEARNING_RATE, rate, **at.where)
        self.log.event(metrics.THROUGHPUT, speed, unit="img/s", **at.where)
        self.log.event(metrics.DATA_WAIT, window.waiting / window.seconds, **at.where)
        self.log.event(metrics.COMMUNICATION, window.communicating / window.seconds, **at.where)
        at.seconds += window.seconds
        self.console.progress(
            f"epoch {at.epoch + 1}/{self.epochs}  step {at.steps_done}/{self.last_step}  "
            f"loss {loss:.4f}  lr {rate:.4f}  {speed:.0f} img/s"
        )

    def bad_record(self, text: str) -> None:
        """Name a record that cannot be decoded and is tolerated."""
        self.log.event(BAD_RECORD, text)
        self.console.line(f"warning: {text}; another record takes its place")

    def evaluated(self, at: Progress, scores: Scores) -> None:
        """Log the scores of an evaluation, whose start was logged before."""
        self.log.event(metrics.EVAL_ACCURACY, scores.top1, **at.where)
        self.log.event(metrics.EVAL_ACCURACY_TOP5, scores.top5, **at.where)
        self.log.event(metrics.EVAL_LOSS, scores.loss, **at.where)
        self.log.stop(metrics.EVAL_STOP, **at.where)
        at.scores = dataclasses.asdict(scores)
        self.console.line(f"epoch {at.epoch + 1}/{self.epochs}  {scores}")

    def ended(self, at: Progress, model: str) -> dict[str, Any]:
        """Log the successful end; return the content of `result.json`."""
        self.log.stop(metrics.RUN_STOP, status=metrics.SUCCESS, step=at.steps_done)
        return {
            "status": metrics.SUCCESS,
            "model": model,
            "steps": at.steps_done,
            "epochs": at.steps_done / at.steps_per_epoch,
            "training_seconds": at.seconds,
            "evaluation": at.scores or None,
        }
