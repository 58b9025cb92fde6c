"""Predict throughput, times, energy, cost and memory of a recipe for numbers of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran.errors import UsageError
from trimaran.plan import base_rate, calibration, estimates, feeding, work
from trimaran.plan.base_rate import BaseRate
from trimaran.plan.feeding import Feed
from trimaran.plan.situation import Situation
from trimaran.plan.step import Step

USABLE = 0.9
"""Share of a device's memory that a plan uses: an assumption for what the framework, the driver and
fragments of free memory need."""


@dataclass(frozen=True)
class Row:
    """The prediction for a number of nodes.

    Attributes:
        nodes: number of nodes.
        devices: number of devices in all nodes.
        step: predicted times of a training step.
        throughput: samples per second of all devices.
        speedup: throughput relative to one device.
        hours: time to train; None if the recipe has no number of epochs or samples.
        kilowatt_hours: energy of the devices in this time; None if their power is unknown.
        cost: price of the nodes for this time; None without a price.
        feed: what the input must deliver.
    """

    nodes: int
    devices: int
    step: Step
    throughput: float
    speedup: float
    hours: float | None
    kilowatt_hours: float | None
    cost: float | None
    feed: Feed


@dataclass(frozen=True)
class Memory:
    """The estimated memory of a device, and a division of the batch that fits.

    Attributes:
        gigabytes: estimate with the recipe's batch, in GB.
        available: memory of the device in GB; None if the target does not state it.
        micro_batch: largest divisor of the batch per device that fits; None if the recipe's batch
            fits, if not even one sample does, or if the app estimates its memory itself.
        by_app: whether the estimate is that of the app.
    """

    gigabytes: float
    available: float | None
    micro_batch: int | None
    by_app: bool = False

    @property
    def fits(self) -> bool | None:
        """Whether the recipe's batch fits; None if the memory of the device is unknown."""
        return None if self.available is None else self.gigabytes <= USABLE * self.available


@dataclass(frozen=True)
class Plan:
    """The predictions of a recipe on a target.

    Attributes:
        left_out: numbers of nodes that have too few samples for all of their devices.
    """

    situation: Situation
    base: BaseRate
    memory: Memory
    rows: Sequence[Row]
    left_out: Sequence[int]

    @property
    def binding(self) -> str:
        """What limits the largest number of nodes: the longest part of its step, in words."""
        if (input_ := self.rows[-1].feed.binding) is not None:
            return f"{input_}, which is not part of the prediction; else {self.base.binding}"
        last = self.rows[-1].step
        parts = {
            "communication": last.exposed + last.contention,
            "differences between the devices": last.stragglers,
        }
        name, seconds = max(parts.items(), key=lambda part: part[1])
        if seconds < 0.05 * last.seconds:
            return self.base.binding
        return f"{name} ({seconds / last.seconds:.0%} of a step); else {self.base.binding}"


def make(
    situation: Situation, nodes: Sequence[int], *, rate: float | None = None,
    run: Path | None = None, price: float | None = None,
) -> Plan:
    """Return the plan of a recipe.

    Args:
        situation: the recipe, its network and its target.
        nodes: numbers of nodes, in increasing order.
        rate: samples per second of one device, which the user measured; None: published rates are
            searched.
        run: directory of a finished run, whose rate counts; None: as `rate` says.
        price: price of a node for an hour.

    Raises:
        UsageError: a fact that the prediction needs is missing.
    """
    base = base_rate.find(situation, rate) if run is None else calibration.of_run(situation, run)
    if nodes[-1] > 1 and situation.layout(2).between is None:
        raise UsageError(
            f"the target {situation.target_name} states no link between nodes",
            code="plan-impossible",
            hint=f"add hardware.between to recipes/targets/{situation.target_name}.yaml, or plan"
                 " for --nodes 1",
        )
    devices = situation.hardware.device.count
    possible = [one for one in nodes if situation.batch_on(one * devices) >= situation.least]
    if not possible:
        raise UsageError(
            f"{nodes[0]} nodes have {nodes[0] * devices} devices, and a step of all of them has"
            f" only {situation.whole} samples, in parts of {situation.least}",
            code="plan-impossible", hint="plan for fewer nodes: --nodes 1",
        )
    rows = [_row(situation, base, count, price) for count in possible]
    left_out = [one for one in nodes if one not in possible]
    return Plan(situation, base, memory(situation), rows, left_out)


def _row(situation: Situation, base: BaseRate, nodes: int, price: float | None) -> Row:
    layout = situation.layout(nodes)
    found = situation.step(situation.batch_on(layout.ranks) / base.rate, layout)
    throughput = base.rate * layout.ranks * found.efficiency
    hours = None if situation.samples is None else situation.samples / throughput / 3600
    watts = situation.hardware.device.watts
    return Row(
        nodes, layout.ranks, found, throughput, layout.ranks * found.efficiency, hours,
        None if hours is None or watts is None else hours * watts * layout.ranks / 1000,
        None if hours is None or price is None else hours * nodes * price,
        feeding.of(situation, nodes, throughput),
    )


def memory(situation: Situation) -> Memory:
    """Return the estimated memory of a device.

    If the app estimates the memory of its recipes itself, its estimate counts. Else, all outputs of
    layers are kept for the backward pass, in the width of the precision, and each parameter has the
    state that the card states.
    """
    available = situation.hardware.device.memory_gb
    if (own := estimates.peak(situation.recipe_name, situation.recipe)) is not None:
        return Memory(own / 1e9, available, None, by_app=True)
    outputs = sum(layer.outputs for layer in situation.network.layers)
    state = situation.planning.state_bytes * situation.network.parameters

    def needed(batch: int) -> float:
        return (state + batch * outputs * situation.width) / 1e9

    micro_batch = None
    if available is not None and needed(situation.batch) > USABLE * available:
        fitting = [part for part in range(1, situation.batch)
                   if situation.batch % part == 0 and needed(part) <= USABLE * available]
        micro_batch = max(fitting, default=None)
    return Memory(needed(situation.batch), available, micro_batch)


def link_source(situation: Situation, place: str) -> str:
    """Return where the constants of a link are from."""
    measured = situation.links.get(place)
    return f"target {situation.target_name}" if measured is None else measured.source


def document(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON has it."""
    situation, base, feed = plan.situation, plan.base, plan.rows[-1].feed
    return {
        "recipe": situation.recipe_name, "target": situation.target_name,
        "network": situation.network.name, "parameters": situation.network.parameters,
        "flops_per_sample": work.TRAINING * situation.network.flops,
        "batch_per_device": situation.batch, "batch_of_all_devices": situation.whole,
        "exchange": situation.exchange, "precision": situation.precision, "unit": situation.unit,
        "device": situation.hardware.device.name,
        "rate": base.rate, "rate_source": base.source, "rate_uncertainty": base.uncertainty,
        "links": {
            place: {"gb_per_second": wire.share * wire.bandwidth / 1e9,
                    "latency_us": wire.latency * 1e6, "source": link_source(situation, place)}
            for place in ("within", "between") if (wire := situation.wire(place)) is not None
        },
        "binding": plan.binding, "reads_data": feed.reads,
        "bytes_per_sample": None if feed.size is None else feed.size.average,
        "memory_gb": plan.memory.gigabytes, "memory_available_gb": plan.memory.available,
        "micro_batch": plan.memory.micro_batch, "memory_by_app": plan.memory.by_app,
        "assumed": situation.assumed, "unchecked": situation.hardware.unchecked,
        "nodes_left_out": list(plan.left_out),
        "rows": [
            {"nodes": row.nodes, "devices": row.devices, "throughput": row.throughput,
             "speedup": row.speedup, "efficiency": row.step.efficiency,
             "samples_per_second_per_node": row.feed.samples,
             "gigabytes_per_second_per_node": row.feed.gigabytes,
             "decoding_cores_per_node": row.feed.cores,
             "step_seconds": row.step.seconds, "compute_seconds": row.step.compute,
             "straggler_seconds": row.step.stragglers, "contention_seconds": row.step.contention,
             "exposed_communication_seconds": row.step.exposed,
             "hours": row.hours, "kilowatt_hours": row.kilowatt_hours, "cost": row.cost}
            for row in plan.rows
        ],
    }
