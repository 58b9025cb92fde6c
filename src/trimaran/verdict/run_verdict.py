"""Judge a run directory: compare its files with each other, then judge its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.errors import UsageError
from trimaran.recipes import targets
from trimaran.recipes.command import real_changes
from trimaran.recipes.library import RecipeFile
from trimaran.run import run_directory
from trimaran.run.record import RunRecord
from trimaran.run.recorded_recipe import recipe_as_run
from trimaran.verdict import consistency, metrics_log, rules
from trimaran.verdict.metrics_log import Event
from trimaran.verdict.rules import Verdict


@dataclass(frozen=True)
class JudgedRun:
    """A completed run whose files agree, and its verdict."""

    directory: Path
    record: RunRecord
    recipe: RecipeFile
    events: Sequence[Event]
    verdict: Verdict


def judge(directory: Path) -> JudgedRun:
    """Return the verdict of the run in `directory`; no file is written.

    Raises:
        UsageError: `directory` is not a run directory, the run has not completed, or its recipe
            was changed after the run.
        RunError: Files of the run are missing, damaged or disagree.
    """
    record = run_directory.load(directory)
    if record.status != "completed":
        raise UsageError(
            f"the run in {directory} is {record.status}, not completed, so it has no verdict",
            code="run-incomplete", hint=f"see the log in {directory / 'log.txt'}",
        )
    recipe = recipe_as_run(directory, record)
    events = metrics_log.read_events(directory / run_directory.METRICS)
    card = recipe.card.card
    checked = consistency.check(directory, record, recipe.recipe, card, events)
    target = targets.load(recipe.recipe.target)
    unlike = [text for host in record.hosts for text in targets.differences(target, host)]
    judged = rules.judge(
        recipe.recipe,
        card,
        events,
        changed=[
            *real_changes(recipe.recipe, card, record.recipe.changed),
            *(["nodes"] if record.recipe.nodes else []),
        ],
        unlike=list(dict.fromkeys(unlike)),
        site=record.site_changes,
        other_data=consistency.other_data(record),
        image_digest=record.image.digest,
        checked=checked,
    )
    return JudgedRun(directory, record, recipe, events, judged)
