"""The lifecycle of a run around the training loop of an app.

    session = Session(out, strategy, stop, course, words, training)
    with session.running():
        while not session.is_over:
            session.begin_epoch()
            batches = data.epoch(session.progress.epoch, session.progress.step)
            while session.has_steps:
                batch = session.next_batch(batches)
                …                                             # the step, in the app
                session.finish_step(samples, sums, {LEARNING_RATE: rate})
            session.end_epoch(evaluate)

A session starts or resumes the run, logs it, writes checkpoints, stops after signals, and compares
the weights of the ranks. It needs no framework: the result of a step is a sum over the ranks, which
may still be in progress (`trainkit.strategy.Pending`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trainkit import metrics, outputs, parts, pieces
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
    """Return whether `folder` has a finished run; if so, rank 0 prints a note.

    All ranks must call this function; all ranks get the same result.

    Args:
        folder: the `--out` folder.
        resume: "never", "auto" or a checkpoint file.
        strategy: the strategy that connects the ranks.

    Raises:
        ArgumentError: the folder has a run, and a new run was requested.
    """
    finished = strategy.share(
        strategy.is_main and outputs.is_finished(folder, resume, warn=print)
    )
    if finished and strategy.is_main:
        print(f"{folder} has a finished run, there is nothing to resume")
    return finished


class Session:
    """One run of a training, which resumes from `out.state` if there is one.

    Args:
        out: the output files.
        strategy: the strategy that connects the ranks.
        stop: flag that is set by signals.
        course: length of the training.
        words: names of the app's measurements.
        training: the app's implementation of the interface `Training`.
        watch: profiler of a few steps, or None for no profile.

    Attributes:
        progress: position of the training.
        journal: log of the training.
    """

    def __init__(
        self, out: Outputs, strategy: Strategy, stop: StopFlag, course: Course, words: Words,
        training: Training, watch: Watch | None = None,
    ) -> None:
        self._out, self._strategy, self._stop = out, strategy, stop
        self._course, self._training, self._watch = course, training, watch
        self.progress = Progress(course.steps_in(0))
        if out.state is not None:
            parts.restore(training.parts(), out.state["parts"])
            self.progress = Progress.of(out.state["progress"])
        console = Console(course.last_step, self.progress.steps_done, quiet=not strategy.is_main)
        self.journal = Journal(
            out.log, console, words, course.epochs, course.last_step, out.energy
        )
        self._watchdog = Watchdog(
            strategy.rank, strategy.size, out.folder / "hanging", course.patience,
            writers=strategy.trainers,
        )
        self._under_way: list[Step] = []
        self._stopping = self._agreed = False
        self._started = self._waited = self._communicated = 0.0

    @property
    def is_over(self) -> bool:
        """Whether the training is complete, including the evaluation of its last epoch."""
        done = self.progress.steps_done
        return done >= self._course.last_step and self.progress.closed == done

    @property
    def has_steps(self) -> bool:
        """Whether the current epoch has another step."""
        return not self.progress.epoch_is_over and self.progress.steps_done < self._course.last_step

    @property
    def stop_asked(self) -> bool:
        """Whether this rank received a signal to stop."""
        return bool(self._stop)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Log the start and the end of the run; the training loop runs in the `with` block."""
        if self._out.state is None:
            self.journal.began(self._training.facts(), self._strategy.size)
        else:
            self.journal.resumed(self.progress, self._strategy.size)
        try:
            with self._watchdog:
                yield
                self._check_agreement()
                self._watchdog.beat("writing the last checkpoint", slow=True)
                self._out.checkpoints.wait()
            memory = self._strategy.gather(self._strategy.peak_memory())
        except AppError:
            with contextlib.suppress(OSError):  # a full disk must not hide the first error
                self._out.log.stop(metrics.RUN_STOP, status=metrics.ABORTED, **self.progress.where)
            raise
        finally:
            self.journal.console.close()
        result = self.journal.ended(self.progress, memory)
        self._out.finish(result | dict(self._training.own_result()))

    def begin_epoch(self) -> None:
        """Log the start of an epoch, unless the run resumes within it."""
        if self.progress.step == 0:
            where = {**self.progress.where, "steps": self.progress.steps_per_epoch}
            self._out.log.start(metrics.EPOCH_START, **where)

    def next_batch(self, batches: Iterator[T]) -> T:
        """Return the next batch, and start the timer of the step."""
        self.begin_step()
        self._watchdog.beat("reading data")
        batch = next(batches)
        self._watchdog.beat("making a step")
        self._waited = time.perf_counter() - self._started
        return batch

    def begin_step(self) -> None:
        """Start the timer of a step in which the framework itself reads the batch."""
        if self._watch is not None:
            self._watch.before()
        self._out.energy.begin()
        self._started, self._communicated = time.perf_counter(), self._strategy.communicating
        self._watchdog.beat("making a step")

    def finish_step(self, samples: int, sums: Pending, rates: Mapping[str, float]) -> None:
        """Count a completed step; write a checkpoint if it is due, and stop after a signal.

        Args:
            samples: samples of the step on all ranks.
            sums: sums over all ranks: each loss of these samples, in the order of
                `Words.losses`, followed by the number of ranks whose `stop_asked` is true.
            rates: metric key -> value that determined the step, such as the learning rate.

        Raises:
            DivergedError: a loss is not finite.
            StoppedError: a rank received a signal to stop; a checkpoint was written.
        """
        progress, watch = self.progress, self._watch
        self._watchdog.beat("waiting for the sums of all ranks")
        progress.step += 1
        self._under_way.append(Step(progress.epoch, progress.steps_done, samples, rates, sums))
        due = progress.steps_done % self._course.log_every == 0 or progress.epoch_is_over
        watched = watch is not None and watch.is_on
        last = progress.steps_done == self._course.last_step
        self._settle(leave=0 if due or watched or last else self._strategy.pending)
        took = (
            time.perf_counter() - self._started, self._waited,
            self._strategy.communicating - self._communicated,
        )
        progress.window.add_time(*took)
        progress.window.count_step(self._out.energy.kinds, samples)
        self.journal.console.step()
        if watch is not None and (report := watch.after(*took)):
            self.journal.console.line(report)
        if due:
            self._meter()
            self.journal.stepped(progress, rates)
        self._between_steps()

    def end_epoch(self, evaluate: Callable[[], Evaluation | None]) -> None:
        """End the current epoch: evaluate if an evaluation is due, and write a checkpoint.

        Args:
            evaluate: function that evaluates, and returns None if a signal interrupted it.

        Raises:
            StoppedError: a signal interrupted the evaluation, which the resumed run repeats.
            DivergedError: a score or a weight is not finite.
        """
        self._settle()
        self._meter()
        before = self._out.log.position()
        took = self.progress.seconds - self.progress.epoch_began
        if self.progress.epoch_is_over and math.isfinite(took):
            self._out.log.event(metrics.EPOCH_SECONDS, took, unit="s", **self.progress.where)
        self._out.log.stop(metrics.EPOCH_STOP, **self.progress.where)
        if self._evaluation_is_due():
            self._out.log.start(metrics.EVAL_START, **self.progress.where)
            found = evaluate()
            if found is None:
                self._stop_here(before)
            else:
                self._check_finite(found.values)
                self.journal.evaluated(self.progress, found)
        if self.progress.epoch_is_over:
            self.progress.next_epoch(self._course.steps_in(self.progress.epoch + 1))
        self.progress.closed = self.progress.steps_done
        self._save(self._out.log.position())

    def end_here(self) -> None:
        """End the training after the epoch that has just ended."""
        self._course = dataclasses.replace(self._course, last_step=self.progress.steps_done)

    def counter(self, what: str, total: int, unit: str) -> Counter:
        """Return a progress counter for a task such as an evaluation; only rank 0 shows it.

        For the arguments, see `Counter`. Each update also reports progress to the watchdog.
        """

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
        if self.progress.steps_done % every == 0 and not self.progress.epoch_is_over:
            self._save(self._out.log.position())

    def _settle(self, leave: int = 0) -> None:
        """Wait for the losses of all pending steps except the newest `leave` steps.

        The losses of older steps are usually complete, because the GPU and the sums over the ranks
        had time to finish during the newer steps.
        """
        while len(self._under_way) > leave:
            step = self._under_way.pop(0)
            *losses, stopping = step.sums.result()
            self._stopping |= stopping > 0
            for name, loss in zip(self.journal.words.losses.values(), losses, strict=True):
                if not math.isfinite(loss):
                    raise self._diverged(name, loss, step)
            self.progress.window.add_losses(step.samples, losses)

    def _meter(self) -> None:
        """Add the energy of all ranks since the last call to the sums for the next log line.

        Evaluations and checkpoints are excluded from the energy, as they are from the throughput.
        """
        self.progress.window.add_energy(self._out.energy.collect())

    def _diverged(self, name: str, loss: float, step: Step) -> DivergedError:
        rates = "".join(f", {k.replace('_', ' ')} {v:.4g}" for k, v in step.rates.items())
        return DivergedError(
            f"the {name} is {loss} at step {step.number} (epoch {step.epoch + 1}{rates}); "
            f"{self.journal.words.advice}",
            code="loss-not-finite",
        )

    def _check_finite(self, state: Mapping[str, Any], *, shared: bool = True) -> None:
        """Raise DivergedError if `state` contains NaN or infinite values.

        `shared` means that the state is equal on all ranks. Otherwise the ranks exchange their
        results, so that all of them raise the same error.
        """
        names = [next(parts.not_finite(state), None)]
        for name in filter(None, names if shared else self._strategy.gather(names[0])):
            raise DivergedError(
                f"{name} is not finite after step {self.progress.steps_done}, which is not kept; "
                f"{self.journal.words.advice}",
                code="state-not-finite",
            )

    def _check_agreement(self) -> None:
        """Compare the weights of all ranks bit by bit, after the first step and at the end.

        This check detects a framework that does not average the gradients. Such a framework reports
        no error, and the loss still decreases.
        """
        self._watchdog.beat("comparing the weights of the ranks", slow=True)
        if not self._strategy.agree(self._training.digest()):
            raise RanksDifferError(
                f"the ranks have different weights after step {self.progress.steps_done}: "
                f"gradients are not averaged by --strategy {self._strategy.name}, or a node is "
                "faulty"
            )
        self._agreed = True

    def _evaluation_is_due(self) -> bool:
        every, progress = self._course.eval_every, self.progress
        last = progress.steps_done == self._course.last_step
        return every > 0 and ((progress.epoch + 1) % every == 0 or last)

    def _stop_here(self, offset: int) -> None:
        """Write a checkpoint, and raise StoppedError.

        A run that resumes from the checkpoint truncates `metrics.jsonl` to `offset` bytes.
        """
        self._settle()
        self._save(offset)
        self._out.checkpoints.wait()
        signal = self._stop.name if self._stop else "a signal to another rank"
        raise StoppedError(
            f"stopped by {signal} after step {self.progress.steps_done} of "
            f"{self._course.last_step}; continue with --resume auto"
        )

    def _save(self, offset: int) -> None:
        """Start to write a checkpoint.

        A run that resumes from the checkpoint truncates `metrics.jsonl` to `offset` bytes.

        Raises:
            DivergedError: the weights are not finite. The loss of the last step does not show
                this, because it was computed before the update. Only this check prevents diverged
                weights from replacing a good checkpoint.
        """
        self._settle()
        self._meter()
        self._watchdog.beat("writing a checkpoint", slow=True)
        self._training.before_save()
        kept = parts.snapshot(self._training.parts())  # on all ranks: some parts are gathered
        rest, own = pieces.split(kept)
        self._check_finite(kept, shared=not own)
        state = {
            **self._training.own_state(),
            "step": self.progress.steps_done,
            "identity": self._out.identity,
            "metrics_offset": offset,
            "progress": dataclasses.asdict(self.progress),
            "parts": rest,
        }
        if own or self._strategy.is_main:
            self._out.checkpoints.start(self.progress.steps_done, state, own)
