"""Compare predictions of the planner with the rates of published scaling series."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimaran import strict
from trimaran.plan import step, work
from trimaran.plan.communication import Layout
from trimaran.plan.situation import wire
from trimaran.plan.step import Step
from trimaran.recipes.hardware import Link, Positive

FILE = Path(__file__).with_name("series.yaml")


class Workload(strict.Model):
    """The name of a network, and the app that describes this network in `work.json`."""

    app: str
    name: str


class Copied(strict.Model):
    """A network that PyTorch's DataParallel copies to all devices before each forward pass."""

    parameters: Annotated[int, Field(gt=0)]
    passes: Annotated[int, Field(gt=0)] = Field(description="forward passes in a step")


class Series(strict.Model):
    """One published scaling series.

    Exactly one of the fields `network`, `copied` and `sharded` is given. A series with `network`
    has ranks that exchange gradients as `exchange` states. In a series with `copied`, PyTorch's
    DataParallel copies the weights. In a series with `sharded`, FSDP divides them over the ranks.
    """

    name: str
    network: Workload | None = None
    copied: list[Copied] = Field(default=[], description="networks of DataParallel")
    sharded: Positive | None = Field(
        default=None, description="bytes of the weights that FSDP divides over the ranks"
    )
    batch: Positive = Field(description="samples per device and step")
    devices: Annotated[int, Field(gt=0)] = Field(description="devices of a whole node")
    within: Link | None = None
    between: Link | None = None
    exchange: Literal["all-reduce", "parameter-server"] = "all-reduce"
    unit: str = Field(description="unit of the published values: a rate or speed-up")
    rate: Positive | None = Field(
        default=None, description="rate of the first point, if its value is a speed-up"
    )
    published: dict[Annotated[int, Field(gt=0)], Positive] = Field(
        min_length=2, description="devices -> published value; the first one is not predicted"
    )
    sources: list[str] = Field(min_length=1)
    assumed: dict[str, str] = Field(default_factory=dict)
    note: str | None = None

    @model_validator(mode="after")
    def _complete(self) -> Series:
        if [bool(self.network), bool(self.copied), bool(self.sharded)].count(True) != 1:
            raise ValueError("give one of 'network', 'copied' and 'sharded'")
        if (self.unit == "speed-up") != (self.rate is not None):
            raise ValueError("rate: give it if the unit is speed-up, and only then")
        return self

    def layout(self, count: int) -> Layout:
        """Return the nodes and links of `count` devices, which fill one node after the other."""
        devices = min(count, self.devices)
        return Layout(count // devices, devices, wire(self.within), wire(self.between))

    def step(self, compute: float, count: int) -> Step:
        """Return the predicted times of a step on `count` devices.

        `compute` is the computation time of one device alone, in seconds.
        """
        layout = self.layout(count)
        if self.copied:
            sent = sum(one.parameters * (one.passes + 1) for one in self.copied)
            return step.copied(compute, layout, work.FP32 * sent)
        if self.sharded:
            return step.sharded(compute, layout, self.sharded)
        assert self.network is not None  # noqa: S101 - checked above
        network = work.network(self.network.app, self.network.name)
        return step.predict(network, compute, layout, self.exchange)


class _File(strict.Model):
    series: list[Series]


@dataclass(frozen=True)
class Compared:
    """The published and the predicted rate or speed-up of a series on one number of devices."""

    series: Series
    devices: int
    published: float
    predicted: float

    @property
    def error(self) -> float:
        """The predicted minus the published value, divided by the published value."""
        return self.predicted / self.published - 1


def load() -> list[Series]:
    """Return the scaling series in `series.yaml`: published rates or speed-ups by device count."""
    return strict.load(_File, FILE).series


def compare(series: Series) -> Iterator[Compared]:
    """Yield the published and the predicted value for each number of devices of a series.

    The predictions start from the published value for the smallest number of devices, which is
    therefore left out.
    """
    (first, one), *others = sorted(series.published.items())
    took = series.batch * first / (series.rate or one)
    compute = step.computation(took, lambda seconds: series.step(seconds, first))
    base = first * series.step(compute, first).efficiency
    for count, published in others:
        found = count * series.step(compute, count).efficiency
        yield Compared(series, count, published, one * found / base)


def table() -> list[Compared]:
    """Return the predicted and published values of all series, for each number of devices."""
    return [point for series in load() for point in compare(series)]


def mean_error(points: list[Compared]) -> float:
    """Return the mean absolute relative error of the predictions."""
    return fmean(abs(point.error) for point in points)
