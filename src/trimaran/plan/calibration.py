"""Take constants of a prediction from results of the app `collectives`, and from finished runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from trimaran import strict
from trimaran.errors import UsageError
from trimaran.plan import base_rate, options, situation
from trimaran.plan.base_rate import BaseRate
from trimaran.plan.communication import Wire
from trimaran.plan.situation import MeasuredLink, Situation
from trimaran.recipes import targets
from trimaran.recipes.hardware import Positive
from trimaran.recipes.recipe import Recipe
from trimaran.verdict import metrics, run_verdict

FILE = "collectives.json"
"""File into which the app `collectives` writes its results."""

OPERATION = "all-reduce"

Place = Literal["within", "between"]
"""The location of a link: within a node, or between nodes."""


class _Range(strict.Model, extra="ignore"):
    """A range of message sizes, for which the model time = alpha + bytes / bandwidth was fitted."""

    to_bytes: Annotated[int, Field(gt=0)]
    alpha_us: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    gb_s: Positive | None


class _Fit(strict.Model, extra="ignore"):
    operation: str
    ranges: list[_Range] = Field(min_length=1)


class _Results(strict.Model, extra="ignore"):
    """The keys of `collectives.json` that a prediction needs."""

    library: str
    backend: str
    ranks: Annotated[int, Field(ge=2)]
    hosts: list[str] = Field(min_length=2)
    fits: list[_Fit]


@dataclass(frozen=True)
class _Fitted:
    """The model of an all-reduce of large messages: time = alpha + bytes / bandwidth.

    `alpha` is in seconds, and `bandwidth` in bytes per second. `members` is the number of ranks or
    nodes in the ring.
    """

    members: int
    place: Place
    alpha: float
    bandwidth: float


def with_link(found: Situation, path: Path) -> Situation:
    """Return a copy of `found` that also has a link measured by the app `collectives`.

    A ring all-reduce of n members takes 2 (n - 1) messages, and each member sends 2 (n - 1) / n
    of the bytes. Therefore the fitted time of an all-reduce gives the latency and the bandwidth
    of a link. Ranks on one host measure the link within a node; ranks on several hosts measure
    the link between nodes.

    Args:
        found: the inputs of a prediction.
        path: a run directory of `collectives`, or its `collectives.json`.

    Raises:
        UsageError: the file is missing, faulty, or has no fit of an all-reduce, or `found`
            already has a measurement of this link.
    """
    file = path / FILE if path.is_dir() else path
    results = strict.load_json(_Results, file)
    fitted = _largest(results, file)
    if (known := found.links.get(fitted.place)) is not None:
        where = "within a node" if fitted.place == "within" else "between nodes"
        raise UsageError(
            f"{path} measures the link {where}, and so does another --link: {known.source}",
            code="arguments-conflict", hint="give --link once for each of the two links",
        )
    steps = 2 * (fitted.members - 1)
    wire = Wire(steps / fitted.members * fitted.bandwidth, fitted.alpha / steps, share=1.0)
    hosts = len(set(results.hosts))
    source = (f"measured: {OPERATION} of {results.ranks} ranks on {hosts}"
              f" host{'s' * (hosts > 1)}, {results.library} {results.backend} ({path})")
    return replace(found, links={**found.links, fitted.place: MeasuredLink(wire, source)})


def _largest(results: _Results, file: Path) -> _Fitted:
    fits = [one for one in results.fits if one.operation == OPERATION]
    if not fits or fits[0].ranges[-1].gb_s is None:
        raise UsageError(
            f"{file} has no fitted bandwidth of an {OPERATION}", code="plan-impossible",
            hint="measure it with larger messages: --operations all-reduce --max-bytes 256MiB",
        )
    last, hosts = fits[0].ranges[-1], len(set(results.hosts))
    assert last.gb_s is not None  # noqa: S101 - checked above
    place: Place = "between" if hosts > 1 else "within"
    members = hosts if hosts > 1 else results.ranks
    return _Fitted(members, place, last.alpha_us * 1e-6, last.gb_s * 1e9)


def of_run(found: Situation, directory: Path) -> BaseRate:
    """Return the rate of one device, computed from the throughput of a finished run.

    Args:
        found: the inputs of the prediction.
        directory: the run directory.

    Raises:
        UsageError: the run has another app, network, precision or strategy, has not completed, or
            has no rate, or the target of its recipe states no hardware facts.
        RunError: files of the run are damaged.
    """
    judged = run_verdict.judge(directory)
    changed = judged.record.recipe.changed
    base = judged.recipe.recipe
    recipe = base.model_copy(update={"args": {**base.args, **changed}})
    _check_same(found, recipe, directory)
    metric = found.card.rate
    throughput = None if metric is None else metrics.measure(
        judged.events, found.card.metrics[metric], found.card.metrics[metric].shown or "end")
    if throughput is None or not throughput > 0:
        raise UsageError(f"the run in {directory} has not reported its {metric}",
                         code="rate-missing", hint="name a run that trained several epochs")
    target = targets.load(recipe.target)
    hardware = options.hardware_of(recipe.target, target)
    links = ((found.wire("within"), found.wire("between")) if recipe.target == found.target_name
             else (situation.wire(hardware.within), situation.wire(hardware.between)))
    devices, rate = base_rate.of_recipe(found, recipe, target, throughput, *links)
    unlike = targets.unlike(found.target_name, judged.record.hosts)
    differs = f"; its machine is not the target: {'; '.join(unlike)}" if unlike else ""
    source = (f"measured: {found.rated(throughput)} of {devices}"
              f" device{'s' * (devices > 1)}{differs} ({directory})")
    return BaseRate(rate, source, base_rate.SCALING_ERROR, base_rate.roofline(found)[1])


def _check_same(found: Situation, recipe: Recipe, directory: Path) -> None:
    """Check that a run has the same app, network and precision as the prediction.

    Raises:
        UsageError: one of them differs, or plans do not support an option of the run.
    """
    planning = found.planning
    pairs: list[tuple[str, object, object]] = [("app", recipe.app, found.recipe.app)]
    if recipe.app == found.recipe.app:
        options.check_fixed(recipe, planning)
        pairs += [
            ("network", options.network_of(recipe, planning), found.network.name),
            ("precision", options.precision(recipe, found.card, found.hardware), found.precision),
        ]
    for what, own, wanted in pairs:
        if own != wanted:
            raise UsageError(
                f"the run in {directory} has the {what} {own}, and the recipe {wanted}",
                code="runs-incomparable", hint=f"name a run of {wanted}",
            )
