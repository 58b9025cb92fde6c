"""Find the rate of one device, from which a plan predicts all others.

A rate that the user measured comes first, then published or measured rates of recipes of the same
app, network and precision on the same device, and last the roofline of the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimaran.plan import options, step, work
from trimaran.plan import situation as situations
from trimaran.plan.communication import Layout
from trimaran.plan.situation import Situation
from trimaran.recipes import library, targets
from trimaran.recipes.hardware import Hardware
from trimaran.recipes.planning import Exchange
from trimaran.recipes.recipe import Recipe

PRODUCT_SHARE = 0.79
"""Share of a device's peak that large matrix products reach: 784 of 989 TFLOP/s in bf16 on an H100
(mila-iqia milabench, pull request 311)."""

MEMORY_SHARE = 0.9
"""Share of the peak memory bandwidth that simple loops reach: an assumption; STREAM reaches 0.8 to
0.95 on most devices."""

PASSES = 6
"""Transfers of each layer output in a training step: written and read in the forward pass; in the
backward pass, the output and its gradient are read, and the gradient of the input is written and
read."""

ROOFLINE_RANGE = (0.28, 0.95)
"""Shares of their roofline that published single-device rates of ResNet-50 reach
(tests/plan/test_base_rate.py), so a plan from a roofline takes the middle, and states the range."""

SCALING_ERROR = 0.07
"""Mean absolute error of predictions from a published rate (`trimaran plan --validate`)."""


@dataclass(frozen=True)
class BaseRate:
    """The rate of one device.

    Attributes:
        rate: samples per second.
        source: origin of the rate, in words.
        uncertainty: relative uncertainty of predictions from it.
        binding: what limits one device: computation or memory bandwidth.
    """

    rate: float
    source: str
    uncertainty: float
    binding: str


def find(situation: Situation, measured: float | None = None) -> BaseRate:
    """Return the rate of one device of the situation's target.

    Args:
        situation: the recipe, its network and its target.
        measured: samples per second of one device that the user gives; None: it is searched.
    """
    bound, binding = roofline(situation)
    if measured is not None:
        return BaseRate(measured, "given by --rate", SCALING_ERROR, binding)
    known = _published(situation)
    if known is not None:
        rate, source = known
        return BaseRate(rate, source, SCALING_ERROR, binding)
    low, high = ROOFLINE_RANGE
    middle = (low + high) / 2
    return BaseRate(
        bound * middle,
        f"roofline: {situation.rated(bound)} at most; published runs of ResNet-50 reach"
        f" {low:.0%} to {high:.0%} of their roofline, {middle:.0%} is used",
        (high - low) / 2 / middle, binding,
    )


def roofline(situation: Situation) -> tuple[float, str]:
    """Return the highest possible samples per second of a device, and what limits it.

    Each layer takes the longer one of two times: that of its operations, and that of the transfers
    of its outputs (Williams, Waterman and Patterson, "Roofline", CACM 52, 2009).
    """
    device = situation.hardware.device
    peaks, single = device.teraflops, situation.planning.fp32_layers
    bandwidth = MEMORY_SHARE * device.bandwidth * 1e9
    computing = moving = 0.0
    for layer in situation.network.layers:
        full = single is not None and layer.name.startswith(single)
        peak = _full(situation) if full else peaks[situation.precision]
        speed = PRODUCT_SHARE * peak * 1e12
        one = work.TRAINING * layer.flops / speed
        other = PASSES * layer.outputs * situation.width / bandwidth
        if one >= other:
            computing += one
        else:
            moving += other
    binding = "computation" if computing >= moving else "memory bandwidth"
    return 1 / (computing + moving), f"{binding} of the device"


def _full(situation: Situation) -> float:
    """Return the peak rate of layers that compute in fp32 whatever the precision.

    `trainkit` allows TF32 in all precisions but fp32.
    """
    peaks = situation.hardware.device.teraflops
    known = ("fp32",) if situation.precision == "fp32" else ("tf32", "fp32")
    return next((peaks[one] for one in known if one in peaks), peaks[situation.precision])


def _published(situation: Situation) -> tuple[float, str] | None:
    """Return the rate of one device that a recipe expects, and its source; None if none does.

    The own recipe comes first, then the recipe of the app with the fewest devices.
    """
    own = situation.recipe_name.partition("@")[0]
    app = own.partition("/")[0]
    others = [name for name in library.files() if name.startswith(f"{app}/") and name != own]
    for names in ([own], others):
        found = [
            (*rate, name if point is None else f"{name}@{point}")
            for name in names for point, recipe in library.definition(name).variants()
            if (rate := _rate(situation, recipe)) is not None
        ]
        if found:
            devices, value, source, name = min(found)
            of = "" if devices == 1 else f" of one device, computed from {devices} devices"
            return value, f"{name}: {situation.rated(value)}{of} ({source})"
    return None


def _rate(situation: Situation, recipe: Recipe) -> tuple[int, float, str] | None:
    """Return devices, samples per second of one device, and source of a comparable recipe."""
    card, planning = situation.card, situation.planning
    target = targets.load(recipe.target)
    if (hardware := target.hardware) is None or not _same(situation, recipe, hardware):
        return None
    count = options.devices_of(recipe, target)
    layout = Layout(recipe.resources.nodes, count // recipe.resources.nodes,
                    situations.wire(hardware.within), situations.wire(hardware.between))
    for expected in recipe.expected:
        if expected.unjudged is not None:
            continue
        if expected.metric == card.rate:
            throughput = expected.value
        elif expected.metric == planning.epoch_time:
            throughput = sum(use.samples["train"] for use in recipe.data.values()) / expected.value
        else:
            continue
        batch = options.batch_of(recipe, planning, count)
        exchange = options.exchange_of(recipe, planning)
        source = expected.source or "measured by this project"
        return count, single(situation, throughput, batch, layout, exchange), source
    return None


def _same(situation: Situation, recipe: Recipe, hardware: Hardware) -> bool:
    """Return whether a recipe has the same device, verb, network and precision."""
    planning = situation.planning
    if hardware.device.name != situation.hardware.device.name:
        return False
    if recipe.verb != situation.recipe.verb or not options.plannable(recipe, planning):
        return False
    return (
        options.network_of(recipe, planning) == situation.network.name
        and options.precision(recipe, situation.card, hardware) == situation.precision
    )


def single(
    situation: Situation, throughput: float, batch: float, layout: Layout, exchange: Exchange
) -> float:
    """Return the rate of one device whose prediction for `layout` is `throughput`."""
    return batch / step.computation(
        batch * layout.ranks / throughput,
        lambda compute: step.of(situation.network, compute, layout, exchange, situation.width),
    )
