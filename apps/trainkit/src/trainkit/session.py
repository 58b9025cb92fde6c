"""The lifecycle of a run, around the loop of an app: all that is not its method.

    session = Session(out, strategy, stop, course, words, training)
    with session.running():
        while not session.is_over:
            session.begin_epoch()
            batches = data.epoch(session.at.epoch, session.at.step)
            while session.has_steps:
                batch = session.take(batches)
                …                                             # the step, in the app
                session.made(samples, sums, {LEARNING_RATE: rate})
            session.end_epoch(evaluate)

It begins or goes on, tells, keeps checkpoints, stops where a signal asks for it, and compares the
ranks. No framework is needed for that: what a step computed comes as a `Pending` sum.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trainkit import metrics, outputs, parts
from trainkit.console import Console, Counter
from trainkit.exits import AppError, DivergedError, RanksDifferError, StoppedError
from trainkit.journal import Evaluation, Journal, Words
from trainkit.outputs import Outputs
from trainkit.progress import Progress, Step
from trainkit.signals import StopFlag
from trainkit.strategy import Pending, Strategy
from trainkit.training import Course, Training, Watch
from trainkit.watchdog import Watchdog

T = TypeVar("T")


def has_finished(folder: Path, resume: str, strategy: Strategy) -> bool:
    """Return on all ranks whether `folder` has a finished run; say so.

    Raises:
        ArgumentError: it has a run, finished or not, and a new one was asked for.
    """
    finished = strategy.share(
        strategy.is_main and outputs.is_finished(folder, resume, warn=print)
    )
    if finished and strategy.is_main:
        print(f"{folder} has a finished run, there is nothing to go on with")
    return finished


class Session:
    """One run of a training; it goes on from `out.state` where there is one.

    Args:
        out: where to write.
        strategy: this rank and the others.
        stop: set by signals.
        course: how far the training goes.
        words: what the app calls its measurements.
        training: what is kept of it, and how.
        watch: looks at some steps more closely.

    Attributes:
        at: where the training stands.
        journal: what it tells.
    """

    def __init__(
        self, out: Outputs, strategy: Strategy, stop: StopFlag, course: Course, words: Words,
        training: Training, watch: Watch | None = None,
    ) -> None:
        self._out, self._strategy, self._stop = out, strategy, stop
        self._course, self._training, self._watch = course, training, watch
        self.at = Progress(course.steps_in(0))
        if out.state is not None:
            parts.restore(training.parts(), out.state["parts"])
            self.at = Progress.of(out.state["progress"])
        console = Console(course.last_step, self.at.steps_done, quiet=not strategy.is_main)
        self.journal = Journal(out.log, console, words, course.epochs, course.last_step)
        self._watchdog = Watchdog(
            strategy.rank, strategy.size, out.folder / "hanging", course.patience
        )
        self._under_way: list[Step] = []
        self._stopping = self._agreed = False
        self._started = self._waited = self._communicated = 0.0

    @property
    def is_over(self) -> bool:
        """Whether all is done; the last epoch may have been cut short in its evaluation."""
        done = self.at.steps_done
        return done >= self._course.last_step and self.at.closed == done

    @property
    def has_steps(self) -> bool:
        """Whether the running epoch has another step."""
        return not self.at.epoch_is_over and self.at.steps_done < self._course.last_step

    @property
    def stop_asked(self) -> bool:
        """Whether a signal asked this rank to stop."""
        return bool(self._stop)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Tell the begin and the end of the run, whichever it is; the loop is inside."""
        if self._out.state is None:
            self.journal.began(self._training.facts(), self._strategy.size)
        else:
            self.journal.resumed(self.at, self._strategy.size)
        try:
            with self._watchdog:
                yield
                self._check_agreement()
                self._watchdog.beat("writing the last checkpoint", slow=True)
                self._out.checkpoints.wait()
            memory = self._strategy.gather(self._strategy.peak_memory())
        except AppError:
            with contextlib.suppress(OSError):  # a full disk must not hide the first error
                self._out.log.stop(metrics.RUN_STOP, status=metrics.ABORTED, **self.at.where)
            raise
        finally:
            self.journal.console.close()
        self._out.finish(self.journal.ended(self.at, memory) | dict(self._training.own_result()))

    def begin_epoch(self) -> None:
        """Tell that an epoch begins, unless the run goes on within it."""
        if self.at.step == 0:
            where = {**self.at.where, "steps": self.at.steps_per_epoch}
            self._out.log.start(metrics.EPOCH_START, **where)

    def take(self, batches: Iterator[T]) -> T:
        """Return the next batch: here a step begins."""
        if self._watch is not None:
            self._watch.before()
        self._started, self._communicated = time.perf_counter(), self._strategy.communicating
        self._watchdog.beat("reading data")
        batch = next(batches)
        self._watchdog.beat("making a step")
        self._waited = time.perf_counter() - self._started
        return batch

    def made(self, samples: int, sums: Pending, rates: Mapping[str, float]) -> None:
        """Count the step that was just made; then checkpoint or stop where it is time.

        Args:
            samples: in the step, of all ranks.
            sums: over all ranks: the losses of these samples, in the order of the app's
                `Words`, and at the end 1 for each rank with `stop_asked`.
            rates: what the step was made with, by the keys of the metrics.

        Raises:
            DivergedError: a loss is not finite.
            StoppedError: a signal asked some rank to stop; there is a checkpoint.
        """
        at, watch = self.at, self._watch
        self._watchdog.beat("waiting for the sums of all ranks")
        at.step += 1
        self._under_way.append(Step(at.epoch, at.steps_done, samples, rates, sums))
        due = at.steps_done % self._course.log_every == 0 or at.epoch_is_over
        watched = watch is not None and watch.is_on
        last = at.steps_done == self._course.last_step
        self._settle(leave=0 if due or watched or last else 1)
        took = (
            time.perf_counter() - self._started, self._waited,
            self._strategy.communicating - self._communicated,
        )
        at.window.add_time(*took)
        self.journal.console.step()
        if watch is not None and (told := watch.after(*took)):
            self.journal.console.line(told)
        if due:
            self.journal.stepped(at, rates)
        self._between_steps()

    def end_epoch(self, evaluate: Callable[[], Evaluation | None]) -> None:
        """End the running epoch: evaluate where it is due, and write a checkpoint.

        Args:
            evaluate: returns None where a signal has cut it short.

        Raises:
            StoppedError: so it was; the evaluation is repeated when the training goes on.
            DivergedError: what it found, or a weight, is not finite.
        """
        self._settle()
        before = self._out.log.position()
        self._out.log.stop(metrics.EPOCH_STOP, **self.at.where)
        if self._evaluation_is_due():
            self._out.log.start(metrics.EVAL_START, **self.at.where)
            found = evaluate()
            if found is None:
                self._stop_here(before)
            else:
                self._check_finite(found.values)
                self.journal.evaluated(self.at, found)
        if self.at.epoch_is_over:
            self.at.next_epoch(self._course.steps_in(self.at.epoch + 1))
        self.at.closed = self.at.steps_done
        self._save(self._out.log.position())

    def end_here(self) -> None:
        """Let the training end after the epoch that was just ended."""
        self._course = dataclasses.replace(self._course, last_step=self.at.steps_done)

    def counter(self, what: str, total: int, unit: str) -> Counter:
        """Return what tells how far something is, such as an evaluation; on rank 0."""

        def moved() -> None:
            self._watchdog.beat(what, slow=True)

        moved()
        return Counter(what, total, unit, quiet=not self._strategy.is_main, moved=moved)

    def _between_steps(self) -> None:
        if not self._agreed:
            self._check_agreement()
        if self._stopping:
            self._stop_here(self._out.log.position())
        every = self._course.checkpoint_every
        if self.at.steps_done % every == 0 and not self.at.epoch_is_over:
            self._save(self._out.log.position())

    def _settle(self, leave: int = 0) -> None:
        """Take in the losses of the steps under way but the `leave` newest.

        One step late, the wait is short: sums over the ranks, and a GPU, had a step's time.
        """
        while len(self._under_way) > leave:
            step = self._under_way.pop(0)
            *losses, stopping = step.sums.result()
            self._stopping |= stopping > 0
            for name, loss in zip(self.journal.words.losses.values(), losses, strict=True):
                if not math.isfinite(loss):
                    raise self._diverged(name, loss, step)
            self.at.window.add_losses(step.samples, losses)

    def _diverged(self, name: str, loss: float, step: Step) -> DivergedError:
        rates = "".join(f", {k.replace('_', ' ')} {v:.4g}" for k, v in step.rates.items())
        return DivergedError(
            f"the {name} is {loss} at step {step.number} (epoch {step.epoch + 1}{rates}); "
            f"{self.journal.words.advice}"
        )

    def _check_finite(self, state: Mapping[str, Any]) -> None:
        for name in parts.not_finite(state):
            raise DivergedError(
                f"{name} is not finite after step {self.at.steps_done}, which is not kept; "
                f"{self.journal.words.advice}"
            )

    def _check_agreement(self) -> None:
        """Compare the weights of all ranks, bit by bit: after the first step, and at the end.

        A framework that does not average the gradients says nothing, and learns something.
        """
        self._watchdog.beat("comparing the weights of the ranks", slow=True)
        own = self._training.digest()
        if self._strategy.any(own != self._strategy.share(own)):
            raise RanksDifferError(
                f"the ranks have different weights after step {self.at.steps_done}: gradients are "
                f"not averaged by --strategy {self._strategy.name}, or a node is faulty"
            )
        self._agreed = True

    def _evaluation_is_due(self) -> bool:
        every, at = self._course.eval_every, self.at
        last = at.steps_done == self._course.last_step
        return every > 0 and ((at.epoch + 1) % every == 0 or last)

    def _stop_here(self, offset: int) -> None:
        """Write a checkpoint and end with the code for "stopped early, resumable"."""
        self._settle()
        self._save(offset)
        self._out.checkpoints.wait()
        signal = self._stop.name if self._stop else "a signal to another rank"
        raise StoppedError(
            f"stopped by {signal} after step {self.at.steps_done} of {self._course.last_step}; "
            "go on with --resume auto"
        )

    def _save(self, offset: int) -> None:
        """Begin to write a checkpoint; `offset` is the size of the metrics that belong to it.

        Raises:
            DivergedError: the weights are not finite. A loss is of the weights before its step, so
                these would be found too late, and take the place of a checkpoint that is good.
        """
        self._settle()
        self._watchdog.beat("writing a checkpoint", slow=True)
        self._training.before_save()
        kept = parts.snapshot(self._training.parts())  # on all ranks: some gather
        self._check_finite(kept)
        state = {
            **self._training.own_state(),
            "step": self.at.steps_done,
            "identity": self._out.identity,
            "metrics_offset": offset,
            "progress": dataclasses.asdict(self.at),
            "parts": kept,
        }
        if self._strategy.is_main:
            self._out.checkpoints.start(self.at.steps_done, state)
