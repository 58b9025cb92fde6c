"""Read the runs to compare, from run directories and files of evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from trimaran import strict
from trimaran.errors import UsageError
from trimaran.recipes import cards
from trimaran.recipes.cards import Argument, Card
from trimaran.recipes.expectation import Efficiency
from trimaran.recipes.library import real_changes
from trimaran.recipes.recipe import Recipe
from trimaran.report import panels, variants
from trimaran.report.page import short
from trimaran.report.panels import LARGEST, KeptCurve
from trimaran.report.run_evidence import Machine, RunEvidence, describe
from trimaran.report.variants import RunVariant
from trimaran.run.record import RecipeRecord
from trimaran.verdict import metrics, run_verdict
from trimaran.verdict.metrics import Row, Verdict
from trimaran.verdict.run_verdict import JudgedRun


@dataclass(frozen=True)
class Experiment:
    """The properties that all repeats of one experiment have in common.

    Repeats differ only by chance, for example by the seed. All values are texts for display.
    """

    recipe: str
    recipe_file: str
    arguments: str
    image: str
    machine: str
    modified: str = "no"
    site_file: str = "neutral"

    def unlike(self, other: Experiment) -> list[str]:
        """Return one text for each property that differs between this experiment and `other`."""
        mine, theirs = vars(self), vars(other)
        return [f"{key.replace('_', ' ')} {mine[key]} instead of {theirs[key]}"
                for key in mine if mine[key] != theirs[key]]


@dataclass(frozen=True)
class Side:
    """One of the compared runs.

    Attributes:
        path: path as the user gave it.
        experiment: the properties that the run has in common with its repeats.
        card: description of the app (`app.yaml`).
        changed: all arguments that differ from the recipe, including the seed.
        started: date and time of the start of the run.
        nodes: number of nodes.
        ranks: world size; None: the run does not record it.
        devices: number of devices that compute: the number of GPUs if a rank uses several GPUs,
            otherwise the number of ranks; None: not known.
        seconds: duration of the run.
        verdict: the verdict.
        windows: metric -> readings in the order of time; the value of the metric is their median.
        curves: curves of the metrics; evidence of older versions has none.
        variant: the variant of the app that the run used; None: the app has no variants, or
            evidence of an older version does not record the variant.
        efficiency: the scaling efficiency that the recipe expects; None: the recipe expects none,
            or the evidence is from another version of the recipe.
    """

    path: str
    experiment: Experiment
    card: Card
    changed: Mapping[str, Argument]
    started: datetime
    nodes: int
    ranks: int | None
    devices: int | None
    seconds: float
    verdict: Verdict
    windows: Mapping[str, Sequence[float]]
    curves: Sequence[KeptCurve]
    variant: RunVariant | None
    efficiency: Efficiency | None

    @property
    def app(self) -> str:
        """The name of the app."""
        return self.experiment.recipe.partition("/")[0]

    def row(self, metric: str, at: str) -> Row | None:
        """Return the verdict's row for a metric and a moment (`at`), such as `end`.

        Return None if the verdict does not judge this metric at this moment, or if the run has no
        finite value for it.
        """
        return next((
            row for row in self.verdict.rows if (row.metric, row.at) == (metric, at)
            and row.measured is not None and abs(row.measured) < LARGEST
        ), None)

    def curve(self, metric: str) -> KeptCurve | None:
        """Return the curve of a metric; None if the run has no such curve."""
        return next((one for one in self.curves if one.metric == metric), None)


def load(path: Path) -> Side:
    """Read a run directory or a file of evidence.

    Raises:
        UsageError: `path` is neither a run directory nor a file of evidence, the run has not
            completed, or a file is invalid.
        RunError: the files of the run contradict each other.
    """
    if path.is_dir():
        return _of_run(str(path), run_verdict.judge(path))
    if path.name == "verdict.json":
        raise UsageError(f"{path} is a file of a run directory", code="argument-invalid",
                         hint=f"name the run directory: {path.parent}")
    try:
        return _of_evidence(str(path), strict.load_json(RunEvidence, path))
    except UsageError as error:
        fault, *more = error.message.splitlines()
        others = f" (and {len(more)} more faults)" if more else ""
        raise UsageError(
            f"neither a run directory nor evidence of a run: {fault}{others}",
            code="evidence-invalid" if path.exists() else "file-missing",
            hint=error.hint or "name run directories, or files that `evidence add` wrote",
        ) from error


def _of_run(path: str, judged: JudgedRun) -> Side:
    record, card = judged.record, judged.recipe.card.card
    real = real_changes(judged.recipe.recipe, card, record.recipe.changed)
    machines = [Machine.of(host) for host in (record.host, *record.nodes)]
    asked = judged.recipe.recipe.resources
    ranks = _ranks(record.environment) or asked.nodes * asked.tasks_per_node
    return Side(
        path=path, card=card, changed=record.recipe.changed, started=record.started,
        experiment=Experiment(
            recipe=record.recipe.name, recipe_file=record.recipe.sha256[:12],
            arguments=_words({key: record.recipe.changed[key] for key in real}),
            image=f"{record.image.name} {short(record.image.digest)} ({record.image.engine})",
            machine=describe(machines), modified="yes" if record.modified else "no",
            site_file=", ".join(record.site_changes) or "neutral",
        ),
        nodes=len(machines),
        ranks=ranks, devices=ranks * max(asked.gpus_per_task, 1),
        seconds=record.seconds or 0.0, verdict=judged.verdict,
        windows={
            row.metric: [value for value in metrics.readings(
                judged.events, card.metrics[row.metric], row.at) if abs(value) < LARGEST]
            for row in judged.verdict.rows if row.at.startswith("median")
        },
        curves=panels.kept_curves(judged.events, card),
        variant=variants.of_recipe(judged.recipe, record.recipe.changed, judged.events),
        efficiency=judged.recipe.recipe.efficiency,
    )


def _of_evidence(path: str, evidence: RunEvidence) -> Side:
    run = evidence.run
    card = cards.load(run.recipe.name.partition("/")[0]).card
    real = {key: value for key, value in run.recipe.changed.items()
            if key not in card.neutral_options}
    recipe = variants.recipe_here(run.recipe)
    curves = {curve.metric: curve for curve in evidence.curves}
    return Side(
        path=path, card=card, changed=run.recipe.changed, started=run.started,
        experiment=Experiment(
            recipe=run.recipe.name, recipe_file=run.recipe.sha256[:12], arguments=_words(real),
            image=f"{run.image.name} {short(run.image.digest)} ({run.image.engine})",
            machine=run.machine,
            site_file=", ".join(run.site.changes if run.site else ()) or "neutral",
        ),
        nodes=1 + len(run.nodes), ranks=_ranks(run.environment), devices=_devices(recipe, evidence),
        seconds=run.seconds,
        verdict=evidence.verdict,
        # A curve has steps, not epochs: only the median of all readings can be computed from it.
        windows={
            row.metric: [value for _, _, value in curves[row.metric].points if abs(value) < LARGEST]
            for row in evidence.verdict.rows
            if row.at == "median-after-epoch-0" and row.metric in curves
        },
        curves=evidence.curves, variant=evidence.variant or _by_recipe(recipe, run.recipe, card),
        efficiency=None if recipe is None else recipe.efficiency,
    )


def _by_recipe(recipe: Recipe | None, used: RecipeRecord, card: Card) -> RunVariant | None:
    """Return the variant that the recipe of a run selects, for evidence that does not record it.

    Return None if the app has no variants, or if the recipe of the run is not in this checkout.
    """
    if card.variants is None or recipe is None:
        return None
    return RunVariant(arguments=variants.arguments(recipe, used.changed, card.variants))


def _devices(recipe: Recipe | None, evidence: RunEvidence) -> int | None:
    """Return the number of devices that the run used, or None if it cannot be determined.

    It cannot be determined if the evidence lacks the number of ranks. The same holds if the machine
    has GPUs and `recipe`, which contains the number of GPUs per rank, is None.
    """
    ranks = _ranks(evidence.run.environment)
    if ranks is None or (recipe is None and evidence.run.host.accelerators):
        return None
    return ranks * max(recipe.resources.gpus_per_task if recipe is not None else 0, 1)


def _words(changed: Mapping[str, Argument]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(changed.items())) or "the recipe's"


def _ranks(environment: Mapping[str, object] | None) -> int | None:
    """Return the world size that the app recorded, or None if it recorded no valid number."""
    strategy = (environment or {}).get("strategy")
    size = strategy.get("size") if isinstance(strategy, dict) else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None
