"""Check whether a recipe agrees with the card and the options of its app."""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.data import contracts
from trimaran.errors import nearest
from trimaran.parsing import Location
from trimaran.recipes import options, targets
from trimaran.recipes.cards import Card, Metric
from trimaran.recipes.recipe import SYNTHETIC, Expectation, Recipe

Faults = Mapping[Location, str]
"""Place in the recipe's file -> fault."""


def faults(recipe: Recipe, card: Card) -> Faults:
    """Return all faults of a recipe whose app has `card`."""
    if recipe.verb not in card.verbs:
        problem = f"{recipe.app} has no verb '{recipe.verb}' ({nearest(recipe.verb, card.verbs)})"
        return {("verb",): problem}
    return {
        **_target_fault(recipe), **_data_fault(recipe, card), **_kind_faults(recipe, card),
        **expectation_faults(recipe, card), **_argument_faults(recipe),
    }


def _target_fault(recipe: Recipe) -> Faults:
    if recipe.target not in targets.names():
        near = nearest(recipe.target, targets.names())
        return {("target",): f"unknown target '{recipe.target}' ({near})"}
    targets.load(recipe.target)  # raises for faults of the target
    return {}


def _kind_faults(recipe: Recipe, card: Card) -> Faults:
    """Return the data sets that are undefined, or have samples that the app cannot read."""
    found: dict[Location, str] = {}
    for name in recipe.data:
        if name not in contracts.names():
            found["data", name] = f"unknown data set '{name}' ({nearest(name, contracts.names())})"
        elif (word := contracts.load(name).kind.word) not in card.data.kinds:
            reads = ", ".join(card.data.kinds) or "no data"
            found["data", name] = f"the samples are '{word}', but {recipe.app} reads {reads}"
    return found


def _data_fault(recipe: Recipe, card: Card) -> Faults:
    """Compare the number of data sets; with synthetic samples, the recipe may have none."""
    count = len(recipe.data)
    least, most = {"zero": (0, 0), "one": (1, 1), "several": (1, count)}[card.data.sets]
    if recipe.args.get(SYNTHETIC) is True:
        least = 0
    if least <= count <= most:
        return {}
    return {("data",): f"{recipe.app} reads {card.data.sets} data set(s), the recipe has {count}"}


def expectation_faults(recipe: Recipe, card: Card) -> Faults:
    """Return the faults of the expectations of a recipe, or of all points of a series."""
    found: dict[Location, str] = {}
    for at, expected in recipe.expectations():
        key, problem = _expectation_fault(expected, recipe.app, card)
        if problem:
            place = (*at, key)
            found[place] = problem
    return found


def _expectation_fault(expected: Expectation, app: str, card: Card) -> tuple[str, str]:
    """Return the faulty key and the fault; an empty fault: the expectation is correct."""
    metric = card.metrics.get(expected.metric)
    if metric is None:
        near = nearest(expected.metric, card.metrics)
        return "metric", f"{app} has no metric '{expected.metric}' ({near})"
    if expected.unit != metric.unit:
        unit = metric.unit or "none: leave it out"
        return "unit", f"the unit of {expected.metric} is {unit}"
    if not metric.can_be(expected.value):
        return "value", f"{expected.value:g} {metric.unit}".rstrip() + " is not possible"
    return _bound_fault(expected, metric)


def _bound_fault(expected: Expectation, metric: Metric) -> tuple[str, str]:
    """Return the key of the bound by which a run can fail, and its fault; empty: no fault."""
    if metric.better == "higher":
        key, bound, limit = "lower", expected.bounds[0], metric.least
        idle = bound is not None and limit is not None and bound <= limit
    else:
        key, bound, limit = "upper", expected.bounds[1], metric.most
        idle = bound is not None and limit is not None and bound >= limit
    if bound is None:
        return key, f"is missing: a {metric.better} {expected.metric} is better"
    return key, f"every run reaches {bound:g}, so no run could fail" if idle else ""


def _argument_faults(recipe: Recipe) -> Faults:
    """Return the arguments that the app would refuse, in the recipe or at a point of a series."""
    found: dict[Location, str] = {}
    for number, variant in recipe.variants():
        for key, fault in options.faults(variant.app, variant.verb, variant.args).items():
            found[_place(recipe, number, key)] = fault
    return found


def _place(recipe: Recipe, point: int | None, key: str) -> Location:
    """Return the place of an argument: at a point of a series, or in `args` of the recipe."""
    if recipe.series is None or point is None or key not in recipe.series.points[point].args:
        return ("args", key)
    return ("series", "points", point, "args", key)
