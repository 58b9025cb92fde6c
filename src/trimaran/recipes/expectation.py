"""Model the expected values of a recipe: their tolerances, and the sources of the numbers."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from pydantic import Field, model_validator

from trimaran import strict
from trimaran.errors import nearest
from trimaran.recipes.cards import Card, Metric, Number, When
from trimaran.recipes.words import Word
from trimaran.strict import Digest


class Measured(strict.Model):
    """The origin of a value that this project has measured."""

    date: date
    host: str
    command: str
    image_digest: Digest | None = Field(description="null: measured outside a container")
    seeds: dict[int, Number] = Field(min_length=1, description="result of each seed")
    note: str | None = None


class Expectation(strict.Model):
    """One value that a run must reach, with tolerances and the source of the value."""

    metric: Word = Field(description="name of a metric in the app card")
    unit: str = Field(default="", description="unit of the metric in the app card")
    at: When
    value: Number
    lower: Number | None = Field(
        default=None, gt=-1, le=0, description="relative margin below, e.g. -0.01"
    )
    upper: Number | None = Field(default=None, ge=0, description="relative margin above")
    warn: Number | None = Field(
        default=None, gt=-1, lt=0,
        description="relative margin below, less than 'lower'; a lower value passes with a warning",
    )
    source: str | None = Field(default=None, description="publication of the number")
    unjudged: str | None = Field(
        default=None, min_length=1, description="why a correct run need not reach the value, for"
        " example because its source used another framework: it is shown, and not judged",
    )
    measured: Measured | None = None

    @model_validator(mode="after")
    def _complete(self) -> Expectation:
        if (self.source is None) == (self.measured is None):
            raise ValueError("give exactly one of 'source' (a publication) and 'measured'")
        if self.unjudged is not None and (self.lower, self.upper, self.warn) != (None, None, None):
            raise ValueError("unjudged: a value that is not judged has no margins")
        if self.warn is not None and (self.lower is None or self.warn <= self.lower):
            raise ValueError(f"warn: {self.warn:g} is not between 'lower' and 0")
        if self.measured is not None:
            seeds = self.measured.seeds.values()
            if not min(seeds) <= self.value <= max(seeds):
                raise ValueError(
                    f"value: {self.value:g} is not between the results of the seeds,"
                    f" {min(seeds):g} to {max(seeds):g}"
                )
        return self

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The lowest and the highest accepted value, in `unit`; None means no limit."""
        return self._with(self.lower), self._with(self.upper)

    @property
    def warn_below(self) -> float | None:
        """The value below which a run passes with a warning, in `unit`; None means no warning."""
        return self._with(self.warn)

    def _with(self, margin: float | None) -> float | None:
        way = 1 if self.value >= 0 else -1  # a lower bound is below a negative value, too
        return None if margin is None else self.value * (1 + way * margin)

    def fault(self, app: str, card: Card) -> tuple[str, str]:
        """Check the expectation against the app card; return the faulty key and the fault.

        If there is no fault, the fault is "" and the key has no meaning.
        """
        metric = card.metrics.get(self.metric)
        if metric is None:
            near = nearest(self.metric, card.metrics)
            return "metric", f"{app} has no metric '{self.metric}' ({near})"
        if self.unit != metric.unit:
            unit = metric.unit or "none: leave it out"
            return "unit", f"the unit of {self.metric} is {unit}"
        if not metric.can_be(self.value):
            return "value", f"{self.value:g} {metric.unit}".rstrip() + " is not possible"
        return ("", "") if self.unjudged is not None else self._bound_fault(metric)

    def _bound_fault(self, metric: Metric) -> tuple[str, str]:
        """Return the key of the bound that a bad run would violate, and the fault of that bound.

        The key is `lower` if higher values of the metric are better, else `upper`. A bound is
        faulty if it is missing, or if no possible value of the metric violates it; otherwise the
        fault is empty.
        """
        if metric.better == "higher":
            key, bound, limit = "lower", self.bounds[0], metric.least
            idle = bound is not None and limit is not None and bound <= limit
        else:
            key, bound, limit = "upper", self.bounds[1], metric.most
            idle = bound is not None and limit is not None and bound >= limit
        if bound is None:
            return key, f"is missing: a {metric.better} {self.metric} is better"
        return key, f"every run reaches {bound:g}, so no run could fail" if idle else ""


class Efficiency(strict.Model):
    """The published efficiency of a point (one run) of a series, which `trimaran compare` judges.

    The efficiency is the throughput per device, divided by the throughput per device of the point
    with `over` devices.
    """

    over: Annotated[int, Field(ge=1)] = Field(description="size of the point to compare with")
    value: Number = Field(gt=0, description="1 is linear scaling")
    lower: Number = Field(gt=-1, lt=0, description="relative margin below, e.g. -0.10")
    source: str = Field(description="publication of the number")

    @property
    def lowest(self) -> float:
        """The lowest accepted efficiency."""
        return self.value * (1 + self.lower)
