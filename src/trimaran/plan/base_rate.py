"""Find the throughput of one device, from which a plan predicts the throughput of many devices.

A rate that the user measured has priority. Otherwise, the rate is from a recipe of the same app,
network and precision on the same device, or else from the roofline model of the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimaran.plan import options, step, work
from trimaran.plan import situation as situations
from trimaran.plan.communication import Layout, Wire
from trimaran.plan.situation import Situation
from trimaran.recipes import library, targets
from trimaran.recipes.hardware import Hardware
from trimaran.recipes.planning import Exchange
from trimaran.recipes.recipe import Recipe
from trimaran.recipes.targets import Target

PRODUCT_SHARE = 0.79
"""Fraction of a device's peak rate that large matrix products reach: on an H100, 784 of 989 TFLOP/s
in bf16 (mila-iqia milabench, pull request 311)."""

MEMORY_SHARE = 0.9
"""Assumed fraction of the peak memory bandwidth that simple loops reach; the STREAM benchmark
reaches 0.8 to 0.95 on most devices."""

PASSES = 6
"""Number of memory transfers for each layer output in a training step. The forward pass writes and
reads the output. The backward pass reads the output and its gradient, and writes and reads the
gradient of the input."""

ROOFLINE_RANGE = (0.28, 0.95)
"""Smallest and largest fraction of the roofline that published ResNet-50 rates on one device reach
(tests/plan/test_base_rate.py). A plan from a roofline uses the mean, and states the range."""

SCALING_ERROR = 0.07
"""Mean absolute relative error of the rates that are predicted for many devices from a published
rate of few devices, as `trimaran plan --validate` reports it."""


@dataclass(frozen=True)
class BaseRate:
    """The throughput of one device, and its source.

    Attributes:
        rate: throughput in samples per second.
        source: description of the source of the rate.
        uncertainty: relative uncertainty of predictions from this rate.
        binding: what limits one device: computation or memory bandwidth.
    """

    rate: float
    source: str
    uncertainty: float
    binding: str


def find(situation: Situation, measured: float | None = None) -> BaseRate:
    """Return the throughput of one device of the target.

    Args:
        situation: the recipe, its network and its target.
        measured: samples per second of one device, which the user measured; None: the rate is
            taken from a recipe, or else from the roofline.
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
    """Return the maximum throughput of a device in samples per second, and what limits it.

    The time of a layer is the time of its operations or the time of its memory transfers, whichever
    is longer (Williams, Waterman and Patterson, "Roofline", CACM 52, 2009).
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
    """Return the device's peak rate, in TFLOP/s, for layers that always compute in fp32.

    If the recipe has another precision, `trainkit` allows TF32 for these layers. Then the peak rate
    for TF32 is returned, if the device has one.
    """
    peaks = situation.hardware.device.teraflops
    known = ("fp32",) if situation.precision == "fp32" else ("tf32", "fp32")
    return next((peaks[one] for one in known if one in peaks), peaks[situation.precision])


def _published(situation: Situation) -> tuple[float, str] | None:
    """Return the rate of one device that a recipe expects, in samples per second, and its source.

    The recipe of the plan has priority over other recipes of the app, and fewer devices have
    priority over more devices. Return None if no comparable recipe expects a rate.
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
    """Return the devices of `recipe`, its samples per second of one device, and their source.

    The first value is the number of devices; the source is the publication of the rate. Return
    None if `recipe` cannot be compared with the recipe of the plan, or expects no rate.
    """
    card, planning = situation.card, situation.planning
    target = targets.load(recipe.target)
    if (hardware := target.hardware) is None or not _same(situation, recipe, hardware):
        return None
    within, between = situations.wire(hardware.within), situations.wire(hardware.between)
    for expected in recipe.expected:
        if expected.unjudged is not None:
            continue
        if expected.metric == card.rate:
            throughput = expected.value
        elif expected.metric == planning.epoch_time:
            throughput = sum(use.samples["train"] for use in recipe.data.values()) / expected.value
        else:
            continue
        devices, rate = of_recipe(situation, recipe, target, throughput, within, between)
        return devices, rate, expected.source or "measured by this project"
    return None


def _same(situation: Situation, recipe: Recipe, hardware: Hardware) -> bool:
    """Return whether `recipe` has the same device, verb, network and precision as the plan."""
    planning = situation.planning
    if hardware.device.name != situation.hardware.device.name:
        return False
    if recipe.verb != situation.recipe.verb or not options.plannable(recipe, planning):
        return False
    return (
        options.network_of(recipe, planning) == situation.network.name
        and options.precision(recipe, situation.card, hardware) == situation.precision
    )


def of_recipe(
    situation: Situation, recipe: Recipe, target: Target, throughput: float,
    within: Wire | None, between: Wire | None,
) -> tuple[int, float]:
    """Return the number of devices of a recipe, and the rate of one device, in samples per second.

    Args:
        situation: the inputs of the prediction.
        recipe: a recipe with the network and precision of the prediction.
        target: the target of the recipe, with hardware facts.
        throughput: samples per second of all devices.
        within: link within a node of the target.
        between: link between nodes of the target.
    """
    devices, nodes = options.devices_of(recipe, target), recipe.resources.nodes
    layout = Layout(nodes, devices // nodes, within, between)
    batch = options.batch_of(recipe, situation.planning, devices)
    exchange = options.exchange_of(recipe, situation.planning)
    return devices, single(situation, throughput, batch, layout, exchange)


def single(
    situation: Situation, throughput: float, batch: float, layout: Layout, exchange: Exchange
) -> float:
    """Return the rate of one device for which the model predicts `throughput`.

    `throughput` is the rate of all devices of `layout`. Both rates are in samples per second.
    """
    return batch / step.computation(
        batch * layout.ranks / throughput,
        lambda compute: step.predict(
            situation.network, compute, layout, exchange, situation.width),
    )
