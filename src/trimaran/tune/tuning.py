"""Tune a recipe: search, confirm, and write the derived recipe if it is confirmed as faster."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from trimaran import process
from trimaran.errors import UsageError, nearest
from trimaran.files import write_atomic, writing
from trimaran.hostfacts import host_facts
from trimaran.images import definition
from trimaran.recipes import cards
from trimaran.recipes.cards import Tuning
from trimaran.recipes.recipe import Tuned
from trimaran.reporting import Reporter
from trimaran.run import pipeline, run_directory
from trimaran.run.pipeline import Ready
from trimaran.run.request import Request
from trimaran.tune import derive, space, trial
from trimaran.tune.record import TuningRecord, host_words
from trimaran.tune.search import load_optuna
from trimaran.tune.session import STEPS, Session
from trimaran.tune.space import Configuration, Space, Value
from trimaran.verdict import metrics

TRIALS_AT_LEAST = 30
"""Number of runs that should fit into the time limit of a tuning.

The runs are the trials of the search, and the runs that confirm the fastest configuration. The
training time of a trial is computed from this number and the time limit.
"""

SHORTEST, LONGEST = 3.0, 60.0
"""Minimum and maximum training time of a trial in seconds."""


SEED = 17
"""Seed of the sampler."""


@dataclass(frozen=True)
class Options:
    """The options that the user has chosen.

    Attributes:
        minutes: time limit of search and confirmation in minutes.
        keep: names of parameters that are not tuned.
    """

    minutes: float
    keep: Sequence[str] = ()


def tune(request: Request, options: Options, reporter: Reporter) -> tuple[TuningRecord, Path]:
    """Tune the recipe of `request`; return the record and the folder of the tuning.

    Raises:
        UsageError: the recipe cannot be tuned, the time is too short, or the folder has files.
        RunError: data or image cannot be prepared, or the recipe itself cannot be run.
    """
    load_optuna()
    tuning, rate = _tunable(request, options)
    pipeline.check(request)
    folder = _new_folder(request)
    ready = pipeline.prepare(request, STEPS, reporter)
    return begin(ready, tuning, rate, folder, options, reporter)


def _tunable(request: Request, options: Options) -> tuple[Tuning, str]:
    """Return the options of the app that can be tuned, and the name of the metric of the rate."""
    recipe, card = request.recipe.recipe, request.recipe.card.card
    for name in options.keep:
        if name not in space.NAMES:
            raise UsageError(f"--keep {name}: no such parameter", code="argument-invalid",
                             hint=nearest(name, space.NAMES))
    known = cards.verbs(recipe.app).get(recipe.verb)
    lacking = [name for name in trial.short(1) if known is None or name not in known.options]
    if card.tuning is None or card.rate is None or lacking:
        what = (f"no option {lacking[0]}" if lacking else
                "no metric of speed" if card.rate is None else "no `tuning` in its card")
        raise UsageError(f"{request.recipe.name} cannot be tuned: {recipe.app} {recipe.verb} has"
                         f" {what}", code="tuning-impossible",
                         hint="apps/README.md describes what an app needs")
    return card.tuning, card.rate


def _new_folder(request: Request) -> Path:
    """Return the path of the folder of a tuning; the folder does not exist, or it is empty.

    Raises:
        UsageError: the folder contains files.
    """
    if request.out is not None:
        run_directory.refuse_used(request.out)
        return request.out.absolute()
    stamp = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return Path.cwd() / run_directory.RUNS / request.recipe.name / f"{stamp}-tune"


def begin(
    ready: Ready, tuning: Tuning, rate: str, folder: Path, options: Options, reporter: Reporter
) -> tuple[TuningRecord, Path]:
    """Tune a prepared recipe in `folder`; return the record and the folder, as `tune` does."""
    request, built = ready.request, ready.built
    file, card = request.recipe, request.recipe.card.card
    known: Mapping[str, str] = (
        definition.environment(request.image) if request.engine.container
        else {key: str(value) for key, value in request.engine.node(built).environment.items()})
    within = space.of(file, tuning, known, keep=options.keep)
    if not within.parameters:
        raise UsageError(f"{file.name}: no parameter is left to tune", code="tuning-impossible",
                         hint="give fewer --keep")
    with writing(f"make the folder {folder}", folder, hint="choose another --out"):
        folder.mkdir(parents=True, exist_ok=request.out is not None)
    deadline = time.monotonic() + 60 * options.minutes
    probe = trial.Runner(ready, within, card.metrics[rate], folder, reporter)
    runner = replace(probe, steps=_steps(probe, options.minutes, reporter))
    record = TuningRecord(
        recipe=file.name, sha256=file.sha256, date=datetime.now(timezone.utc).date(),
        host=host_words(host_facts()), engine=request.engine.name, image_digest=built.digest,
        command=command_line(request, options), minutes=options.minutes, seed=SEED,
        steps=runner.steps, metric=rate, unit=card.metrics[rate].unit,
        parameters={one.name: list(one.values) for one in within.parameters},
    )

    def left() -> float:
        return deadline - time.monotonic()

    session = Session(within, record, folder, runner.measure, reporter, left)
    if (best := session.run()) is not None:
        _write(request, within, best.configuration, record, folder)
    return record, folder


def _steps(runner: trial.Runner, minutes: float, reporter: Reporter) -> int:
    """Measure a few steps of the unchanged recipe, and return the number of steps of a trial.

    Raises:
        TrimaranError: the recipe itself cannot be run.
    """
    with reporter.bar("measuring the time of a step", None):
        directory = runner.run(runner.space.default, "probe", 60 * minutes)
        events = metrics.read_events(directory / run_directory.METRICS)
    step = trial.seconds_per_step(events, runner.metric)
    wanted = min(LONGEST, max(SHORTEST, 60 * minutes / TRIALS_AT_LEAST / 2))
    return max(trial.LEAST_STEPS, round(wanted / step)) if step else trial.LEAST_STEPS


def _write(
    request: Request, within: Space, configuration: Configuration, record: TuningRecord,
    folder: Path,
) -> None:
    """Write the derived recipe below `folder`, so that `--recipes FOLDER` makes it available."""
    seen = record.confirmation
    assert seen is not None  # noqa: S101 - only a confirmed configuration is written
    file = request.recipe
    changed: dict[str, Value] = within.changed(configuration)
    tuned = Tuned.model_validate({
        **record.model_dump(include={"recipe", "sha256", "date", "host", "engine", "image_digest",
                                     "command", "metric", "unit"}),
        "default": [default for default, _ in seen.pairs],
        "tuned": [one for _, one in seen.pairs], "changed": changed,
        **seen.model_dump(include={"gain", "gain_low", "gain_high"}),
    })
    derived = derive.final(file.recipe, file.card.card, within, configuration, tuned)
    name = derive.name(file.name, file.recipe)
    path = folder / "recipes" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    comment = f"Written by `{record.command}`; the key `tuned` has the measured rates."
    write_atomic(path, derive.text(derived, comment))
    record.written = name
    record.write(folder)


def command_line(request: Request, options: Options) -> str:
    """Return the command line for `tuning.json`, with the options that affect rates or trials.

    Files are named without their folders. The command has no option `--data`, because packed data
    have the same content in any folder.
    """
    words = ["trimaran", "tune", request.recipe.name, "--engine", request.engine.name,
             "--minutes", f"{options.minutes:g}"]
    words += [word for name in options.keep for word in ("--keep", name)]
    if request.base is not None:
        given = Path(request.base)
        words += ["--base", given.name if given.exists() else request.base]
    if request.initial is not None:
        words += ["--initial", request.initial.name]
    if request.offline:
        words.append("--offline")
    return process.shell_line(words)
