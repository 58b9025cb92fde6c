"""Read network, batch, precision and number of devices from a recipe, for a prediction."""

from __future__ import annotations

from trimaran.errors import UsageError
from trimaran.recipes import cards
from trimaran.recipes.cards import Argument, Card
from trimaran.recipes.hardware import Hardware, Precision
from trimaran.recipes.planning import Exchange, Planning
from trimaran.recipes.recipe import Recipe
from trimaran.recipes.targets import Target


def check_fixed(recipe: Recipe, planning: Planning) -> None:
    """Check that the recipe does not change the options whose defaults a plan assumes.

    The app card lists these options in `planning.fixed`.

    Raises:
        UsageError: an option in `planning.fixed` has another value than its default.
    """
    known = cards.verbs(recipe.app)[recipe.verb].options
    for name in planning.fixed:
        value = argument(recipe, name)
        if name in known and value not in (known[name].default, str(known[name].default)):
            default = known[name].default
            wanted = f"recipes without {name}" if default is None else default
            raise UsageError(
                f"the recipe sets {name} to {value}, and a plan of {recipe.app} is made for"
                f" {wanted}", code="plan-impossible",
                hint="choose a recipe without this option",
            )


def plannable(recipe: Recipe, planning: Planning) -> bool:
    """Return whether the planner supports the values of all options of a recipe."""
    try:
        check_fixed(recipe, planning)
        network_of(recipe, planning)
        batch_of(recipe, planning, 1)
        exchange_of(recipe, planning)
    except UsageError:
        return False
    return True


def hardware_of(name: str, target: Target, instead: str = "") -> Hardware:
    """Return the hardware facts of `target`.

    Args:
        name: name of `target`, for the error message.
        target: the target.
        instead: text with another remedy, appended to the hint of the error: `, or ...`.

    Raises:
        UsageError: the target states no hardware facts.
    """
    if target.hardware is None:
        raise UsageError(
            f"the target {name} states no hardware facts", code="plan-impossible",
            hint=f"add 'hardware' (devices, peak rates, memory, links) to recipes/targets/"
                 f"{name}.yaml{instead}",
        )
    return target.hardware


def devices_of(recipe: Recipe, target: Target) -> int:
    """Return the number of devices that a recipe uses on all its nodes.

    If the recipe uses no GPUs, the devices are the processors whose cores it requests.
    """
    assert target.hardware is not None  # noqa: S101 - for the types
    resources, count = recipe.resources, target.hardware.device.count
    if resources.gpus_per_node:
        return resources.nodes * resources.gpus_per_node
    if target.node.cores is not None:
        share = resources.tasks_per_node * resources.cpus_per_task / target.node.cores
        count = min(count, max(1, round(count * share)))
    return resources.nodes * count


def size_of(recipe: Recipe, planning: Planning) -> int:
    """Return the size of a sample, such as the number of tokens of a sequence.

    Raises:
        UsageError: the recipe does not state the size as one whole number.
    """
    return _number(recipe, planning.size or "")


def network_of(recipe: Recipe, planning: Planning) -> str:
    """Return the name of a recipe's network in `work.json`, such as `resnet50`."""
    name = str(argument(recipe, planning.network))
    return name if planning.size is None else f"{name}@{size_of(recipe, planning)}"


def batch_of(recipe: Recipe, planning: Planning, devices: int) -> int:
    """Return the number of samples that each device processes in one step.

    Several ranks can share a device, and one rank can use several devices (processors).

    Raises:
        UsageError: the recipe does not state the batch as one whole number.
    """
    found = _number(recipe, planning.batch)
    if planning.sequences:
        found *= size_of(recipe, planning)
    ranks = recipe.resources.nodes * recipe.resources.tasks_per_node
    total = found if planning.whole_batch else found * ranks
    return max(1, total // devices)


def _number(recipe: Recipe, option: str) -> int:
    value = str(argument(recipe, option))
    if not value.isdecimal():
        raise UsageError(f"{option} of the recipe is {value}, and a plan needs one whole number",
                         code="plan-impossible", hint="choose a recipe with one number")
    return int(value)


def exchange_of(recipe: Recipe, planning: Planning) -> Exchange:
    """Return how the ranks of a recipe exchange gradients.

    Raises:
        UsageError: the planner cannot predict the strategy of the recipe.
    """
    if planning.exchange is None:
        return "all-reduce"
    value = str(argument(recipe, planning.exchange.option))
    if value not in planning.exchange.values:
        raise UsageError(
            f"{planning.exchange.option} {value}: the model predicts"
            f" {', '.join(planning.exchange.values)}", code="plan-impossible",
            hint="choose a recipe with one of these",
        )
    return planning.exchange.values[value]


def argument(recipe: Recipe, option: str) -> Argument | None:
    """Return the value of `option` in a recipe, or else the default value of the option."""
    if option in recipe.args:
        return recipe.args[option]
    known = cards.verbs(recipe.app)[recipe.verb].options
    return known[option].default if option in known else None


def precision(recipe: Recipe, card: Card, hardware: Hardware) -> Precision:
    """Return the precision of a recipe; `auto` is bf16 if the device supports bf16, else fp32.

    Raises:
        UsageError: the target states no peak rate for this precision.
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


def samples(recipe: Recipe, planning: Planning, batch: int) -> int | None:
    """Return the number of samples in the whole training; None if it is unknown."""
    if planning.steps is not None and isinstance(
        steps := argument(recipe, planning.steps), int
    ):
        return steps * batch
    epochs = argument(recipe, planning.epochs) if planning.epochs else None
    train = [use.samples.get("train", 0) for use in recipe.data.values()]
    if not isinstance(epochs, int) or isinstance(epochs, bool) or not any(train):
        return None
    return epochs * sum(train)
