"""Collect the inputs of a prediction: network, batch, precision, and facts of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from trimaran.errors import UsageError
from trimaran.plan import options, step, work
from trimaran.plan.communication import LATENCY, Layout, Wire
from trimaran.plan.step import Step
from trimaran.plan.work import Network
from trimaran.recipes import cards, library, targets
from trimaran.recipes.cards import Card
from trimaran.recipes.hardware import Hardware, Link, Precision
from trimaran.recipes.planning import Exchange, Planning
from trimaran.recipes.recipe import Recipe
from trimaran.recipes.targets import Target

WIDTHS: dict[Precision, int] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "int8": 1,
}
"""Size of an activation in bytes, for each precision of matrix products.

With fp8 products, activations are in bf16."""


@dataclass(frozen=True)
class MeasuredLink:
    """A measured link, and a description of the measurement."""

    wire: Wire
    source: str


@dataclass(frozen=True)
class Situation:
    """The inputs of a prediction: a recipe, its network and its target.

    Attributes:
        recipe_name: name of the recipe.
        recipe: the recipe. A recipe that is a series has several runs (points): if the name
            selects none of them, this is the recipe of the smallest run.
        card: the card of the app.
        network: the network.
        batch: number of samples of a device in one step of the recipe.
        whole: number of samples of all devices in one step, if it is the same for any number of
            devices; None: each device always has `batch` samples.
        least: smallest number of samples that a device can get: 1, or the number of tokens of a
            sequence if the samples are tokens.
        exchange: how the ranks exchange gradients.
        precision: precision of matrix products.
        samples: number of samples in the whole training; None if it is unknown.
        target_name: name of the target.
        target: the target.
        hardware: published hardware facts of the target.
        links: `within` or `between` -> measured link, which replaces the link of the target.
    """

    recipe_name: str
    recipe: Recipe
    card: Card
    network: Network
    batch: int
    whole: int | None
    least: int
    exchange: Exchange
    precision: Precision
    samples: int | None
    target_name: str
    target: Target
    hardware: Hardware
    links: Mapping[str, MeasuredLink] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """The size of one element of an activation in bytes."""
        return WIDTHS[self.precision]

    @property
    def planning(self) -> Planning:
        """The part `planning` of the app card."""
        assert self.card.planning is not None  # noqa: S101 - `of` refuses such a card
        return self.card.planning

    @property
    def usual_nodes(self) -> list[int]:
        """The numbers of nodes to plan for if the user names none."""
        return [1] if self.wire("between") is None else [1, 2, 4, 8]

    @property
    def unit(self) -> str:
        """The unit of rates, such as img/s."""
        return (self.card.metrics[self.card.rate].unit if self.card.rate else None) or "samples/s"

    def rated(self, value: float) -> str:
        """Return a rate with its unit."""
        return f"{number(value)} {self.unit}"

    def batch_on(self, devices: int) -> float:
        """Return the number of samples of each device in one step on `devices` devices."""
        return self.batch if self.whole is None else self.whole / devices

    def step(self, compute: float, layout: Layout) -> Step:
        """Return the predicted times of a step on the devices of `layout`.

        `compute` is the computation time of one device alone, in seconds.
        """
        return step.predict(self.network, compute, layout, self.exchange, self.width)

    @property
    def assumed(self) -> dict[str, str]:
        """Assumed facts of the target: key path -> reason."""
        return self.hardware.assumed

    def layout(self, nodes: int) -> Layout:
        """Return the devices and links of `nodes` nodes of the target."""
        return Layout(nodes, self.hardware.device.count, self.wire("within"), self.wire("between"))

    def wire(self, place: Literal["within", "between"]) -> Wire | None:
        """Return the link within a node or between nodes; None if the target states no link."""
        if (measured := self.links.get(place)) is not None:
            return measured.wire
        return wire(self.hardware.within if place == "within" else self.hardware.between)


def number(value: float) -> str:
    """Return a number as text: with three significant digits, or from 100 on as a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def wire(link: Link | None) -> Wire | None:
    """Return a link of a target with bandwidth in bytes/s and latency in s; None without a link."""
    if link is None:
        return None
    return Wire(link.bandwidth * 1e9, LATENCY if link.latency is None else link.latency * 1e-6)


def of(recipe_name: str, target_name: str | None = None) -> Situation:
    """Return the inputs of the prediction for a recipe on a target.

    Args:
        recipe_name: name of the recipe. One run of a series is `RECIPE@NUMBER`; without
            `@NUMBER`, the smallest run of the series is used.
        target_name: name of the target; None: the target of the recipe.

    Raises:
        UsageError: the recipe or the target is unknown, the app does not describe the network, or
            a fact of the target is missing.
    """
    recipe = first(recipe_name)
    file = cards.load(recipe.app)
    if file.card.planning is None:
        raise UsageError(f"the card of {recipe.app} does not say how to plan its recipes",
                         code="plan-impossible",
                         hint=f"add 'planning' to apps/{recipe.app}/app.yaml")
    name = target_name or recipe.target
    whole = targets.load(name)
    hardware = options.hardware_of(name, whole, ", or name a target that has it with --target")
    planning = file.card.planning
    options.check_fixed(recipe, planning)
    devices = options.devices_of(recipe, whole)
    batch = options.batch_of(recipe, planning, devices)
    return Situation(
        recipe_name=recipe_name, recipe=recipe, card=file.card,
        network=work.network(recipe.app, options.network_of(recipe, planning)), batch=batch,
        whole=batch * devices if _keeps_whole(recipe_name, planning) else None,
        least=options.size_of(recipe, planning) if planning.sequences else 1,
        exchange=options.exchange_of(recipe, planning),
        precision=options.precision(recipe, file.card, hardware),
        samples=options.samples(recipe, planning, batch * devices),
        target_name=name, target=whole, hardware=hardware,
    )


def _keeps_whole(recipe_name: str, planning: Planning) -> bool:
    """Return whether the global batch is the same for any number of devices.

    It is not the same if the recipe is a series whose runs have their own batch sizes.
    """
    series = library.definition(recipe_name.partition("@")[0]).series
    own = series is not None and any(planning.batch in one.args for one in series.points.values())
    return planning.whole_batch and not own


def first(recipe_name: str) -> Recipe:
    """Return the recipe of this name.

    One run of a series is `RECIPE@NUMBER`; without `@NUMBER`, the recipe of the smallest run of the
    series is returned.
    """
    recipe = library.definition(recipe_name.partition("@")[0])
    if recipe.series is not None and "@" not in recipe_name:
        return recipe.at(min(recipe.series.points))
    return library.load(recipe_name).recipe
