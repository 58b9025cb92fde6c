"""Determine which variant of an app a run used, and read the metrics of the variant per epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from trimaran import strict
from trimaran.files import sha256
from trimaran.recipes import cards, library
from trimaran.recipes.cards import Argument, Card, Metric, Variants, Verb
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Recipe
from trimaran.report.panels import DIGITS, MOST_KEPT, evenly
from trimaran.run.record import RecipeRecord
from trimaran.strict import Finite
from trimaran.verdict.metrics import Event, Row


class Epoch(strict.Model):
    """The end of one epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        at: seconds from the start of the run, including pauses, to the measurement of `value`. If
            `value` is None, to the measurement of `time`.
        value: value of the metric that `variants.per_epoch` in the app's `app.yaml` names; None:
            not reported.
        time: value of the metric that `variants.time` in the app's `app.yaml` names; None: not
            reported.
    """

    epoch: Annotated[int, Field(ge=1)]
    at: Finite
    value: Finite | None
    time: Finite | None


class RunVariant(strict.Model):
    """The variant that a run used, with the metrics by which variants are compared.

    Attributes:
        arguments: values of the options that distinguish the variants of the app.
        epochs: the epochs in order; at most `MOST_KEPT` epochs, which are evenly spaced.
        sent: amount of data that all ranks send in one step: the metric that the key `sent` in the
            app's card names; None: not reported.
    """

    arguments: dict[str, Argument]
    epochs: Annotated[list[Epoch], Field(max_length=MOST_KEPT)] = Field(default_factory=list)
    sent: Finite | None = None


def current(app: str, copy: Card) -> Card:
    """Return the card of `app` in this checkout, or `copy` if this checkout does not have the app.

    The comparison of variants does not affect a verdict. Therefore it uses the current card, even
    if the card that the run used names no variants.
    """
    return cards.load(app).card if app in cards.names() else copy


def of_recipe(
    recipe: RecipeFile, changed: Mapping[str, Argument], events: Sequence[Event]
) -> RunVariant | None:
    """Return the variant of a run with its metrics; None if the app has no variants.

    Args:
        recipe: the recipe of the run.
        changed: arguments of the run that differ from the arguments of the recipe.
        events: the lines of `metrics.jsonl` of the run.
    """
    ran = recipe.recipe
    card = current(ran.app, recipe.card.card)
    if card.variants is None:
        return None
    known = card.variants
    sent = list(_by_epoch(events, card.metrics[known.sent]).values())
    return RunVariant(
        arguments=arguments(ran, changed, known),
        epochs=evenly(_epochs(events, card.metrics[known.per_epoch], card.metrics[known.time])),
        sent=sent[-1][1] if sent else None,
    )


def arguments(
    recipe: Recipe, changed: Mapping[str, Argument], variants: Variants
) -> dict[str, Argument]:
    """Return the values of the options that distinguish the variants of an app.

    If the run does not set an option, its default is read from `options.json`.

    Args:
        recipe: the recipe of a run.
        changed: arguments of the run that differ from the arguments of the recipe.
        variants: the variants in the app card.
    """
    args = {**recipe.args, **changed}
    verbs = _verbs(recipe.app)
    options = verbs[recipe.verb].options if recipe.verb in verbs else {}
    found = {
        name: args.get(name, options[name].default if name in options else None)
        for name in (variants.option, *variants.further)
    }
    return {name: value for name, value in found.items() if value is not None}


def _verbs(app: str) -> Mapping[str, Verb]:
    """Return the verbs of an app in this checkout, by name; {} if their options are unknown."""
    return {} if cards.unchecked_options(app) else cards.verbs(app)


def recipe_here(used: RecipeRecord) -> Recipe | None:
    """Return the recipe of a run from this checkout.

    Return None if this checkout lacks the recipe, or if its SHA-256 is not the one that the run
    recorded.
    """
    file = library.file_of(used.name)
    same = file is not None and sha256(file) == used.sha256
    return library.load(used.name).recipe if same else None


def fault(told: RunVariant, used: RecipeRecord, rows: Sequence[Row]) -> str | None:
    """Return how the variant in the evidence of a run contradicts the run, or None.

    The options of the variant are compared with the changed arguments, and with the recipe if this
    checkout has the version of the recipe that the run used. The last epoch of the variant is
    compared with the rows of the verdict.

    Args:
        told: the variant in the evidence.
        used: the recipe of the run.
        rows: the rows of the verdict.
    """
    for name, value in told.arguments.items():
        if used.changed.get(name, value) != value:
            return f"{name}={value} contradicts the changed arguments"
    numbers = [one.epoch for one in told.epochs]
    if numbers != sorted(set(numbers)):
        return "the epochs are not in order"
    app = used.name.partition("/")[0]
    variants = cards.load(app).card.variants if app in cards.names() else None
    if variants is None:
        return None
    return (_options_fault(told.arguments, app)
            or _recipe_fault(told.arguments, used, variants)
            or _last_fault(told.epochs, variants.per_epoch, rows))


def _options_fault(told: Mapping[str, Argument], app: str) -> str | None:
    """Return why a value in `told` is invalid for its option, or None if there is no such value.

    `told` contains the options of the variant in the evidence. A value is invalid if every command
    of the app that has the option refuses the value.
    """
    verbs = _verbs(app).values()
    for name, value in told.items():
        faults = [verb.options[name].fault(value) for verb in verbs if name in verb.options]
        if faults and all(faults):
            return f"{name} {faults[0]}"
    return None


def _recipe_fault(
    told: Mapping[str, Argument], used: RecipeRecord, variants: Variants
) -> str | None:
    """Return how the options of the variant in evidence contradict the recipe of the run.

    Return None if they agree, or if this checkout does not have the recipe.
    """
    if (recipe := recipe_here(used)) is None:
        return None
    expected = arguments(recipe, used.changed, variants)
    # Older evidence may lack an option which the card has named since, and which had its default.
    defaults = {name: value for name, value in expected.items()
                if name not in {**recipe.args, **used.changed}}
    if {**defaults, **told} == expected:
        return None
    words = " ".join(f"{name}={value}" for name, value in expected.items())
    return f"the recipe and the changed arguments give {words or 'no option'}"


def _last_fault(epochs: Sequence[Epoch], metric: str, rows: Sequence[Row]) -> str | None:
    """Return how the value of the last epoch contradicts the final value in the verdict.

    Return None if they agree, or if one of them is missing.
    """
    final = next((row.measured for row in rows if (row.metric, row.at) == (metric, "end")), None)
    last = epochs[-1].value if epochs else None
    if final is None or last is None or math.isclose(last, final, rel_tol=10.0 ** (1 - DIGITS)):
        return None
    return f"{metric} after the last epoch is {last:g}, but {final:g} in the verdict"


def name_of(arguments: Mapping[str, Argument], variants: Variants) -> str | None:
    """Return the name of a variant: the value of its main option, then the further options.

    Return None if the value of the main option is not known.
    """
    if variants.option not in arguments:
        return None
    further = [
        name if arguments[name] is True else f"{name}={arguments[name]}"
        for name in variants.further if arguments.get(name, False) is not False
    ]
    return ", ".join([str(arguments[variants.option]), *further])


def _epochs(events: Sequence[Event], per_epoch: Metric, time: Metric) -> list[Epoch]:
    values, times = _by_epoch(events, per_epoch), _by_epoch(events, time)
    return [
        Epoch(
            epoch=number, at=values.get(number, times.get(number, (0.0, 0.0)))[0],
            value=values[number][1] if number in values else None,
            time=times[number][1] if number in times else None,
        ) for number in sorted({*values, *times}) if number >= 1
    ]


def _by_epoch(events: Sequence[Event], metric: Metric) -> dict[int, tuple[float, float]]:
    """Return the last value of a metric in each epoch.

    The result is epoch -> (seconds since the start of the run, value). A value that was logged
    without an epoch has the key 0. Values that the metric cannot have are left out.
    """
    begun = next((event.time_ms for event in events if event.key == "run_start"), None)
    found = {}
    for event in events:
        if event.key == metric.key and event.finite is not None and begun is not None:
            value = float(f"{event.finite * metric.factor:.{DIGITS}g}")
            if math.isfinite(value) and metric.can_be(value):  # the factor may lead to infinity
                at = round((event.time_ms - begun) / 1000, 1)
                found[event.number("epoch_num") or 0] = at, value
    return found
