"""Predict throughput, times, energy, cost and memory of a recipe on several numbers of nodes."""

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
"""Assumed fraction of a device's memory that a training can use; framework, driver and memory
fragmentation need the rest."""


@dataclass(frozen=True)
class Row:
    """The prediction for one number of nodes.

    Attributes:
        nodes: number of nodes.
        devices: number of devices in all nodes.
        step: predicted times of a training step.
        throughput: samples per second of all devices.
        speedup: throughput relative to one device.
        hours: duration of the training; None if the number of its samples is unknown.
        kilowatt_hours: energy of the devices in `hours`; None if `hours` or the power is unknown.
        cost: price of the nodes for `hours`; None if `hours` or the price is unknown.
        feed: input rates and decoding cores that the throughput needs.
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
        gigabytes: estimated memory in GB with the recipe's batch.
        available: memory of the device in GB; None if the target does not state it.
        micro_batch: largest divisor of the batch per device that fits into the memory; None if the
            whole batch fits, if a single sample is too large, if `available` is None, or if the app
            estimates the memory.
        by_app: whether the app estimates the memory.
    """

    gigabytes: float
    available: float | None
    micro_batch: int | None
    by_app: bool = False

    @property
    def fits(self) -> bool | None:
        """Whether the recipe's batch fits into the memory; None if the memory size is unknown."""
        return None if self.available is None else self.gigabytes <= USABLE * self.available


@dataclass(frozen=True)
class Plan:
    """The predictions for a recipe on a target.

    Attributes:
        left_out: requested numbers of nodes without a prediction, because a step has too few
            samples for all their devices.
    """

    situation: Situation
    base: BaseRate
    memory: Memory
    rows: Sequence[Row]
    left_out: Sequence[int]

    @property
    def binding(self) -> str:
        """A description of what limits the throughput on the largest number of nodes."""
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
    """Return the predictions for a recipe on several numbers of nodes.

    Args:
        situation: the recipe, its network and its target.
        nodes: numbers of nodes, in increasing order.
        rate: samples per second of one device, which the user measured; None: the rate is taken
            from a recipe, or else from the roofline. It is ignored if `run` is given.
        run: directory of a finished run, from whose throughput the rate is computed; None: no run
            is used.
        price: price of one node for one hour; None: no cost is computed.

    Raises:
        UsageError: a fact that the prediction needs is missing, or all numbers of nodes are too
            large.
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

    If the app has an estimate for the recipe, this estimate is returned. Otherwise, the memory is
    the sum of two parts: all layer outputs, which are kept for the backward pass, and
    `state_bytes` of the app card for each parameter.
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
    """Return the source of the bandwidth and latency of a link: a measurement or the target."""
    measured = situation.links.get(place)
    return f"target {situation.target_name}" if measured is None else measured.source


def document(plan: Plan) -> dict[str, Any]:
    """Return the plan as data for JSON output."""
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
