"""Predict the rate of two ranks from that of one, and compare it with measured pairs.

`benchmarks/two_ranks.py` measures the pairs. Its evidence has, for each network, the rate of one
rank on one core, that of a rank while an independent one works on the other core, and that of two
ranks which exchange gradients; and the bandwidth of an all-reduce of both ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimaran import strict
from trimaran.plan import step, work
from trimaran.plan.communication import Layout, Wire

NAME = "two_ranks"
"""Name of the benchmark, which is in the names of the files of its evidence."""

ALONE, BESIDE, LINK = "one rank", "one rank beside another", "all-reduce of 32 MiB, two ranks"
"""Ends of the names of rates that are not predicted."""


@dataclass(frozen=True)
class Pair:
    """A measured rate of two ranks, and two predictions of it.

    Attributes:
        network: app and network.
        how: strategy of the two ranks.
        alone: rate of one rank on one core.
        beside: mean rate of a rank beside an independent one.
        measured: rate of both ranks.
        predicted: rate of both ranks, predicted from `alone`.
        beside_predicted: the same, predicted from `beside`.
    """

    network: str
    how: str
    alone: float
    beside: float
    measured: float
    predicted: float
    beside_predicted: float

    @property
    def error(self) -> float:
        """Error of the prediction from one rank alone, relative to the measured rate."""
        return self.predicted / self.measured - 1

    @property
    def beside_error(self) -> float:
        """Error of the prediction from a rank beside another one."""
        return self.beside_predicted / self.measured - 1


def predict(app: str, network: str, batch: int, rate: float, bandwidth: float) -> float:
    """Return the rate of two ranks.

    Args:
        app: the app.
        network: name of the network, as in `work.json` of the app.
        batch: samples of a rank in one step.
        rate: samples per second of one rank.
        bandwidth: bus bandwidth of an all-reduce of both ranks, in GB/s.
    """
    wire = Wire(bandwidth * 1e9, share=1.0)
    found = step.predict(work.network(app, network), batch / rate, Layout(1, 2, wire))
    return 2 * rate * found.efficiency


def pairs(rates: Mapping[str, float], batch: int) -> Iterator[Pair]:
    """Yield each measured pair with its predictions.

    Args:
        rates: name of a rate -> its median; names begin with APP/NETWORK and a colon.
        batch: samples of a rank in one step.
    """
    for name, measured in rates.items():
        where, _, how = name.partition(": ")
        if how in ("", ALONE, BESIDE):
            continue
        app, _, network = where.partition("/")
        alone, beside = rates[f"{where}: {ALONE}"], rates[f"{where}: {BESIDE}"]
        one, other = (predict(app, network, batch, rate, rates[LINK]) for rate in (alone, beside))
        yield Pair(where, how, alone, beside, measured, one, other)


def read(path: Path) -> tuple[dict[str, Any], list[Pair]]:
    """Return the content of a file of evidence of the benchmark, and its pairs.

    Raises:
        UsageError: the file cannot be read.
    """
    content: Any = strict.read_json(path)
    rates = {one["name"]: one["median"] for one in content["rates"]}
    return content, list(pairs(rates, content["settings"]["batch"]))
