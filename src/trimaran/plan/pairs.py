"""Predict the throughput of two ranks from the rate of one rank, and compare it with measurements.

The benchmark `benchmarks/two_ranks.py` measures three rates for each network: the rate of one rank
on one core, the rate of a rank while an independent rank works on the other core, and the rate of
two ranks that exchange gradients. It also measures the bandwidth of an all-reduce of two ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trimaran.plan import step, work
from trimaran.plan.communication import Layout, Wire

NAME = "two_ranks"
"""Name of the benchmark `benchmarks/two_ranks.py`; the names of its result files contain it."""

ALONE, BESIDE, LINK = "one rank", "one rank beside another", "all-reduce of 32 MiB, two ranks"
"""Names of three measurements in the results of the benchmark: the rate of one rank alone, the rate
of a rank while an independent rank works, and the bandwidth of an all-reduce. The first two are
measured for each network; their full names are `APP/NETWORK: one rank`, for example."""

TOGETHER = "two ranks, "
"""Beginning of the names of measurements of two ranks that exchange gradients; the strategy
follows, such as in `APP/NETWORK: two ranks, DDP`."""


@dataclass(frozen=True)
class Pair:
    """A measured rate of two ranks, and two predictions of this rate, in samples per second.

    Attributes:
        network: app and network, `APP/NETWORK`.
        strategy: strategy of the two ranks, such as `DDP`.
        alone: rate of one rank on one core, while no other rank works.
        beside: mean rate of one rank while an independent rank works on the other core.
        measured: measured rate of both ranks together.
        predicted: rate of both ranks together, predicted from the rate `alone`.
        beside_predicted: rate of both ranks together, predicted from the rate `beside`.
    """

    network: str
    strategy: str
    alone: float
    beside: float
    measured: float
    predicted: float
    beside_predicted: float

    @property
    def error(self) -> float:
        """The error of `predicted`, relative to the measured rate.

        `predicted` is computed from the rate of one rank while no other rank works.
        """
        return self.predicted / self.measured - 1

    @property
    def beside_error(self) -> float:
        """The error of `beside_predicted`, relative to the measured rate.

        `beside_predicted` is computed from the rate of one rank while an independent rank works on
        the other core.
        """
        return self.beside_predicted / self.measured - 1


def predict(app: str, network: str, batch: int, rate: float, bandwidth: float) -> float:
    """Return the predicted rate of two ranks together, in samples per second.

    Each rank has one core, which cannot compute while it exchanges gradients. So the exchange
    follows the computation, and nothing overlaps.

    Args:
        app: name of the app.
        network: name of the network, as in `work.json` of the app.
        batch: samples of a rank in one step.
        rate: samples per second of one rank.
        bandwidth: bus bandwidth of an all-reduce of both ranks, in GB/s.
    """
    wire = Wire(bandwidth * 1e9, share=1.0)
    found = step.predict(
        work.network(app, network), batch / rate, Layout(1, 2, wire), "all-reduce-after")
    return 2 * rate * found.efficiency


def pairs(rates: Mapping[str, float], batch: int) -> Iterator[Pair]:
    """Yield each measured rate of two ranks together, with two predictions of this rate.

    One prediction is computed from the rate of one rank alone, the other one from the rate of a
    rank beside an independent rank.

    Args:
        rates: name of a measurement, such as `APP/NETWORK: one rank` -> median of the measured
            rate in samples per second. For the all-reduce of two ranks (`LINK`), the value is the
            bandwidth in GB/s.
        batch: samples of a rank in one step.
    """
    for name, measured in rates.items():
        where, _, how = name.partition(": ")
        if how in ("", ALONE, BESIDE):
            continue
        app, _, network = where.partition("/")
        alone, beside = rates[f"{where}: {ALONE}"], rates[f"{where}: {BESIDE}"]
        one, other = (predict(app, network, batch, rate, rates[LINK]) for rate in (alone, beside))
        yield Pair(where, how.removeprefix(TOGETHER), alone, beside, measured, one, other)
