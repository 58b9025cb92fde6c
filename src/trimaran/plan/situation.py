"""Collect what a prediction needs: the network, its batch and precision, and the target's facts."""

from __future__ import annotations

from dataclasses import dataclass

from trimaran.errors import UsageError
from trimaran.plan import work
from trimaran.plan.communication import LATENCY, Layout, Wire
from trimaran.plan.work import Network
from trimaran.recipes import cards, library, targets
from trimaran.recipes.cards import Argument, Card
from trimaran.recipes.hardware import Hardware, Link, Precision
from trimaran.recipes.recipe import Recipe

WIDTHS: dict[Precision, int] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "int8": 1,
}
"""Precision of the products -> bytes of an activation; fp8 products keep activations in bf16."""


@dataclass(frozen=True)
class Situation:
    """A recipe on a target.

    Attributes:
        recipe_name: name of the recipe.
        card: the card of its app.
        network: the network.
        batch: samples of a device in one step.
        precision: precision of products.
        samples: training samples of all epochs; None if the recipe does not say.
        target_name: name of the target.
        hardware: facts of the target.
    """

    recipe_name: str
    card: Card
    network: Network
    batch: int
    precision: Precision
    samples: int | None
    target_name: str
    hardware: Hardware

    @property
    def width(self) -> int:
        """Bytes of an activation."""
        return WIDTHS[self.precision]

    @property
    def assumed(self) -> dict[str, str]:
        """Facts of the target that are assumed, with the reasons."""
        return self.hardware.assumed

    def layout(self, nodes: int) -> Layout:
        """Return the layout of whole nodes of the target."""
        return Layout(nodes, self.hardware.device.count, wire(self.hardware.within),
                      wire(self.hardware.between))


def wire(link: Link | None) -> Wire | None:
    """Return a link in bytes per second and seconds."""
    if link is None:
        return None
    return Wire(link.bandwidth * 1e9, LATENCY if link.latency is None else link.latency * 1e-6)


def of(recipe_name: str, target_name: str | None = None) -> Situation:
    """Return the situation of a recipe; of its first point, if it is a series.

    Args:
        recipe_name: name of the recipe.
        target_name: name of the target; None: the recipe's.

    Raises:
        UsageError: recipe or target is unknown, the app does not describe the network, or the
            target lacks the facts.
    """
    recipe = first(recipe_name)
    file = cards.load(recipe.app)
    if file.card.planning is None:
        raise UsageError(f"the card of {recipe.app} does not say how to plan its recipes",
                         code="plan-impossible",
                         hint=f"add 'planning' to apps/{recipe.app}/app.yaml")
    name = target_name or recipe.target
    hardware = targets.load(name).hardware
    if hardware is None:
        raise UsageError(
            f"the target {name} states no hardware facts", code="plan-impossible",
            hint=f"add 'hardware' (devices, peak rates, memory, links) to recipes/targets/"
                 f"{name}.yaml, or name a target that has it with --target",
        )
    planning = file.card.planning
    network = work.network(recipe.app, str(argument(recipe, planning.network)))
    return Situation(
        recipe_name, file.card, network, int(str(argument(recipe, planning.batch))),
        precision(recipe, file.card, hardware), _samples(recipe, file.card), name, hardware,
    )


def first(recipe_name: str) -> Recipe:
    """Return a recipe; the smallest point of a series if the name has no point."""
    recipe = library.definition(recipe_name.partition("@")[0])
    if recipe.series is not None and "@" not in recipe_name:
        return recipe.at(min(recipe.series.points))
    return library.load(recipe_name).recipe


def argument(recipe: Recipe, option: str) -> Argument | None:
    """Return the value of an option in a recipe, or its default."""
    if option in recipe.args:
        return recipe.args[option]
    known = cards.verbs(recipe.app)[recipe.verb].options
    return known[option].default if option in known else None


def precision(recipe: Recipe, card: Card, hardware: Hardware) -> Precision:
    """Return the precision of a recipe; `auto` is bf16 if the device has it, else fp32.

    Raises:
        UsageError: the target states no peak rate for it.
    """
    assert card.planning is not None  # noqa: S101 - for the types
    named = str(argument(recipe, card.planning.precision))
    peaks = hardware.device.teraflops
    if named == "auto":
        named = "bf16" if "bf16" in peaks else "fp32"
    found: Precision | None = next((one for one in peaks if one == named), None)
    if found is None:
        raise UsageError(
            f"{hardware.device.name}: no peak rate for {named} (stated: {', '.join(peaks)})",
            code="plan-impossible", hint="choose a target whose device computes in this precision",
        )
    return found


def _samples(recipe: Recipe, card: Card) -> int | None:
    assert card.planning is not None  # noqa: S101 - for the types
    epochs = argument(recipe, card.planning.epochs)
    train = [use.samples.get("train", 0) for use in recipe.data.values()]
    if not isinstance(epochs, int) or isinstance(epochs, bool) or not any(train):
        return None
    return epochs * sum(train)
