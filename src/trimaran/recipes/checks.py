"""Whether a recipe agrees with what its app says of itself: with its card and its options."""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.data import contracts
from trimaran.errors import nearest
from trimaran.parsing import Location
from trimaran.recipes import options, targets
from trimaran.recipes.cards import Card, Metric
from trimaran.recipes.recipe import SYNTHETIC, Expectation, Recipe

Faults = Mapping[Location, str]
"""What is wrong, by the place in the recipe's file."""


def faults(recipe: Recipe, card: Card) -> Faults:
    """Return all that is wrong with a recipe of the app that has `card`."""
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
        return {("target",): f"there is no target '{recipe.target}' ({near})"}
    targets.load(recipe.target)  # its own faults are told, too, before anything is made
    return {}


def _kind_faults(recipe: Recipe, card: Card) -> Faults:
    """Return which data sets are defined nowhere, or have samples that the app cannot read."""
    found: dict[Location, str] = {}
    for name in recipe.data:
        if name not in contracts.names():
            found["data", name] = f"there is no such data set ({nearest(name, contracts.names())})"
        elif (word := contracts.load(name).kind.word) not in card.data.kinds:
            reads = ", ".join(card.data.kinds) or "no data"
            found["data", name] = f"its samples are '{word}', {recipe.app} reads {reads}"
    return found


def _data_fault(recipe: Recipe, card: Card) -> Faults:
    """Compare the number of data sets; none are needed where the app makes up its samples."""
    count = len(recipe.data)
    least, most = {"zero": (0, 0), "one": (1, 1), "several": (1, count)}[card.data.sets]
    if recipe.args.get(SYNTHETIC) is True:
        least = 0
    if least <= count <= most:
        return {}
    return {("data",): f"{recipe.app} reads {card.data.sets} data set(s), here are {count}"}


def expectation_faults(recipe: Recipe, card: Card) -> Faults:
    """Return what is wrong with the numbers that a recipe, or the points of a series, expect."""
    found: dict[Location, str] = {}
    for at, expected in recipe.expectations():
        key, problem = _expectation_fault(expected, recipe.app, card)
        if problem:
            place = (*at, key)
            found[place] = problem
    return found


def _expectation_fault(expected: Expectation, app: str, card: Card) -> tuple[str, str]:
    """Return the key that is wrong, and why, or no reason."""
    metric = card.metrics.get(expected.metric)
    if metric is None:
        near = nearest(expected.metric, card.metrics)
        return "metric", f"{app} has no metric '{expected.metric}' ({near})"
    if expected.unit != metric.unit:
        unit = metric.unit or "none: leave it out"
        return "unit", f"the unit of {expected.metric} is {unit}"
    if not metric.can_be(expected.value):
        return "value", f"{expected.value:g} {metric.unit}".rstrip() + " cannot be"
    return _bound_fault(expected, metric)


def _bound_fault(expected: Expectation, metric: Metric) -> tuple[str, str]:
    """Return the bound without which no run could fail, and what is wrong with it, if anything."""
    if metric.better == "higher":
        key, bound, limit = "lower", expected.bounds[0], metric.least
        idle = bound is not None and limit is not None and bound <= limit
    else:
        key, bound, limit = "upper", expected.bounds[1], metric.most
        idle = bound is not None and limit is not None and bound >= limit
    if bound is None:
        return key, f"is missing: {expected.metric} is the better the {metric.better}"
    return key, f"{bound:g} is what any run reaches: nothing could fail" if idle else ""


def _argument_faults(recipe: Recipe) -> Faults:
    """Return what the app would refuse; of a series also what it would at one of its points."""
    found: dict[Location, str] = {}
    for number, one in recipe.variants():
        for key, fault in options.faults(one.app, one.verb, one.args).items():
            found[_place(recipe, number, key)] = fault
    return found


def _place(recipe: Recipe, point: int | None, key: str) -> Location:
    """Return where an argument stands: at its point of a series, or with those of all."""
    if recipe.series is None or point is None or key not in recipe.series.points[point].args:
        return ("args", key)
    return ("series", "points", point, "args", key)
