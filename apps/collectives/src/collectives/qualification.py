"""The qualification of nodes, from the first rank to `qualification.json`.

The method:

1. Each rank imports PyTorch, and measures the time of the import (`importing.py`). The ranks
   connect.
2. All ranks at the same time multiply matrices, and then measure their memory (`node_rates.py`):
   devices that share power or memory are measured as a training uses them.
3. The first rank of each node writes a file. Then all these ranks at the same time read the file of
   the next node, or their own file if they cannot access the file of the next node.
4. The first rank of each node imports PyTorch again, in a new process.
5. An all-reduce is measured over the ranks of each node, over all ranks, and over the ranks of two
   nodes, in rounds of disjoint pairs (`group_rates.py`, `tournament.py`), until the time is spent.

Before each part, the ranks agree on the remaining time, so that all ranks make the same calls.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

from collectives import (
    group_rates,
    importing,
    node_rates,
    qualification_file,
    qualification_log,
    tournament,
)
from collectives.measure import together
from collectives.qualification_file import Method, NodeRates, PairRate, Qualification
from collectives.settings import QualifySettings
from trainkit import node_memory, provenance
from trainkit.ranks import detect
from trainkit.torch.start import start
from trainkit.torch.strategy import TorchStrategy
from trainkit.watchdog import Watchdog

SHARES = {"gemm": 0.08, "memory": 0.05, "storage": 0.08, "import": 0.25, "all-reduce": 0.06}
"""Part of the qualification -> its largest share of `--seconds`, the time of all parts. The
measurement of pairs gets the remaining time."""

PAIRS_END = 0.95
"""Share of `--seconds` after which no further round of pairs is begun."""

ROUND_SHARE = 0.1
"""Largest share of `--seconds` for one round of measurements between pairs of nodes."""

COLLECTIVE_BYTES = {"cuda": 1 << 30, "cpu": 1 << 24}
"""Kind of device -> largest size of the all-reduce, in bytes."""

MEMORY_SHARE = 8
"""Divisor: each of the three arrays of the triad takes at most 1/8 of the free memory."""

QUALIFYING = "qualifying"
FILE = "qualify-{}-{}.bin"
"""Name of a file that one node writes and another reads.

The first {} is a random word of the job, the second is the rank that writes the file.
"""


def main(settings: QualifySettings, first_import: float) -> None:
    """Qualify the nodes; `first_import` is the time of the import of PyTorch in seconds."""
    alone = detect().size == 1
    strategy = start("single" if alone else "ddp", device=settings.device)
    with strategy.explained():
        Qualifier(settings, strategy, first_import).run()
        strategy.close()


@dataclass
class Own:
    """The measurements of this rank.

    Only the first rank of a node sets `read`, the rate of reading from storage, and `again`,
    the seconds of another import of PyTorch in a new process.
    """

    first: float
    gemm: float = 0.0
    triad: float = 0.0
    read: float | None = None
    reads_other: bool = False
    again: float | None = None
    faults: list[str] = field(default_factory=list)


class Qualifier:
    """The part of the qualification of a job's nodes that this rank executes.

    All ranks execute it together.
    """

    def __init__(
        self, settings: QualifySettings, strategy: TorchStrategy, first_import: float
    ) -> None:
        assert settings.out is not None  # noqa: S101 - `settings.check` refuses None
        self.settings, self.strategy, self.own = settings, strategy, Own(first_import)
        self.folder: Path = settings.out
        self.device = strategy.device
        self.started = time.perf_counter() - _age()
        self.watchdog = Watchdog(
            strategy.rank, strategy.size, self.folder / "hanging", settings.patience,
            subject="qualification",
        )

    def run(self) -> None:
        """Measure the nodes, and write the results."""
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        facts = provenance.environment(qualification_log.PACKAGES, self.strategy)
        with self.watchdog:
            # The watchdog allows more time for the first wait of a kind: end that phase at once.
            self.watchdog.beat(QUALIFYING)
            self.watchdog.beat(QUALIFYING)
            log = together(self.strategy, lambda: qualification_log.begin(self.folder, facts))
            names = self.node_names()
            with qualification_log.running(log, names):
                found = self.measure(date, names)
                if log is not None:
                    qualification_file.write(self.folder, found)
                    qualification_log.finish(self.folder, log, found)

    def measure(self, date: str, names: list[str]) -> Qualification:
        """Measure on all ranks, and return the results; `names` are the nodes of the ranks."""
        nodes = list(dict.fromkeys(names))
        groups = [[rank for rank, name in enumerate(names) if name == node] for node in nodes]
        order, triad_bytes = self.compute(groups)
        self.storage(groups)
        self.beat("import of PyTorch")
        self.watchdog.beat(QUALIFYING, slow=True, detail="import of PyTorch")
        if self.leads(groups):
            # The files are cached now, so that this import takes less time than the first one.
            limit = max(self.seconds("import"), 1.5 * self.own.first)
            self.own.again = importing.again(min(limit, 2 * (self.settings.patience or limit)))
        largest = COLLECTIVE_BYTES[self.device.type]
        inside = self.all_reduce(several(groups) if len(nodes) > 1 else [], largest)
        whole = self.all_reduce(several([list(range(len(names)))]), largest)
        pairs, pair_bytes, count, every = self.pairs(nodes, groups)
        rows = self.strategy.gather(self.own)
        device = self.strategy.gather(self.device_name())
        return Qualification(
            qualification_file.SCHEMA, date, dist.get_backend() if len(names) > 1 else None,
            self.device.type, round(time.perf_counter() - self.started, 3),
            Method(
                order, str(node_rates.GEMM_DTYPES[self.device.type]).removeprefix("torch."),
                triad_bytes, self.settings.storage_bytes, whole.size if whole else 0,
                inside.size if inside else 0, pair_bytes, count, every,
            ),
            [
                _node(node, group, device[group[0]], [rows[rank] for rank in group],
                      self.inside(number, groups, inside, whole))
                for number, (node, group) in enumerate(zip(nodes, groups, strict=True))
            ],
            whole.gb_s[0] if whole else None, pairs,
        )

    def inside(
        self, number: int, groups: group_rates.Groups, inside: group_rates.Rates | None,
        whole: group_rates.Rates | None,
    ) -> float | None:
        """Return the bus bandwidth of an all-reduce within a node, or None for one rank.

        With a single node, this is the all-reduce over all ranks, whose result is in `whole`.
        """
        if inside is not None and len(groups[number]) > 1:
            return inside.gb_s[several(groups).index(groups[number])]
        return whole.gb_s[0] if whole is not None and len(groups) == 1 else None

    def node_names(self) -> list[str]:
        """Return the node of each rank; nodes with the same name get numbers.

        Slurm's name of a node is preferred, because several nodes may run on one host in tests.
        """
        ranks = detect()
        name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        seen: dict[tuple[str, int], int] = {}
        found = []
        for one, local in self.strategy.gather((name, ranks.local_rank)):
            seen[one, local] = seen.get((one, local), 0) + 1
            found.append(one if seen[one, local] == 1 else f"{one}#{seen[one, local]}")
        return found

    def device_name(self) -> str:
        """Return the model of the device of this rank."""
        if self.device.type == "cuda":
            return torch.cuda.get_device_name(self.device)
        return provenance.cpu_model()

    def compute(self, groups: group_rates.Groups) -> tuple[int, int]:
        """Measure matrix product and memory; return matrix order and array size in bytes."""
        self.beat("matrix product")
        synchronize, seconds = self.strategy.synchronize, self.seconds("gemm")
        pilot = node_rates.gemm(self.device, node_rates.PILOT_ORDER, 0.0, synchronize)
        order = node_rates.fitting_order(
            self.device, min(self.strategy.gather(pilot)), seconds
        )
        self.own.gemm = node_rates.gemm(self.device, order, seconds, synchronize)
        self.beat("memory")
        seconds, local = self.seconds("memory"), max(map(len, groups))
        if self.device.type == "cuda":
            free = torch.cuda.mem_get_info(self.device)[0]
        else:
            free = node_memory.free_bytes() // local
        pilot = node_rates.triad(self.device, node_rates.PILOT_BYTES, 0.0, synchronize)
        known = self.strategy.gather((free // MEMORY_SHARE, pilot))
        size = node_rates.fitting_bytes(
            self.device, min(room for room, _ in known), min(rate for _, rate in known), seconds
        )
        self.own.triad = node_rates.triad(self.device, size, seconds, synchronize)
        return order, size

    def storage(self, groups: group_rates.Groups) -> None:
        """Write a file on each node, read the file of the next node, and remove the files.

        No other job has files with these names, so that a job removes only what it has written.
        """
        self.beat("writing to storage")
        name = partial(FILE.format, self.strategy.share(secrets.token_hex(4)))
        seconds = self.seconds("storage")
        place = self.settings.storage or self.folder
        leaders, rank = [group[0] for group in groups], self.strategy.rank
        path, leads = place / name(rank), rank in leaders
        following = leaders[(leaders.index(rank) + 1) % len(leaders)] if leads else rank
        try:
            if leads:
                self.attempt(lambda: node_rates.write_file(
                    path, self.settings.storage_bytes, seconds))
            self.beat("reading from storage")
            if leads:
                self.attempt(lambda: self.read(place / name(following), path, seconds))
            self.beat("storage")
        finally:
            if leads:
                with contextlib.suppress(OSError):
                    path.unlink()

    def read(self, other: Path, own: Path, seconds: float) -> None:
        """Measure the speed of reading a file.

        The file is `other`, which the next node has just written and which this node's page cache
        therefore lacks. If this node cannot access it, the file is `own`, which this node wrote.
        """
        self.own.reads_other = other != own and other.exists()
        self.own.read = node_rates.read_file(other if self.own.reads_other else own, seconds)

    def attempt(self, action: Callable[[], object]) -> None:
        """Perform `action`, and note an OSError as a fault of the node."""
        try:
            action()
        except OSError as error:
            self.own.faults.append(f"storage: {error.strerror or error}")

    def all_reduce(self, groups: group_rates.Groups, size: int) -> group_rates.Rates | None:
        """Measure an all-reduce in each of `groups`; return None if `groups` is empty."""
        if not groups:
            return None
        return group_rates.measure(
            self.strategy, groups, size, self.seconds("all-reduce"), self.beat_only
        )

    def pairs(
        self, nodes: Sequence[str], groups: group_rates.Groups
    ) -> tuple[list[PairRate], int, int, int]:
        """Measure pairs of nodes until the time is spent.

        Returns:
            The bandwidth of each measured pair, the smallest size of an all-reduce in bytes, the
            number of measured rounds, and the number of rounds that all pairs would need.
        """
        every = tournament.rounds(len(nodes))
        found: list[PairRate] = []
        sizes, count = [], 0
        for paired in every:
            left = self.settings.seconds * PAIRS_END - self.elapsed()
            if count and left <= 0:
                break
            joined = [[*groups[one], *groups[other]] for one, other in paired]
            share = min(left / (len(every) - count), ROUND_SHARE * self.settings.seconds)
            seconds = max(0.0, share)
            rates = group_rates.measure(
                self.strategy, joined, COLLECTIVE_BYTES[self.device.type], seconds, self.beat_only
            )
            found += [
                PairRate([nodes[one], nodes[other]], rate)
                for (one, other), rate in zip(paired, rates.gb_s, strict=True)
            ]
            sizes.append(rates.size)
            count += 1
        return found, min(sizes, default=0), count, len(every)

    def leads(self, groups: group_rates.Groups) -> bool:
        """Return whether this rank is the first of its node."""
        return any(group[0] == self.strategy.rank for group in groups)

    def elapsed(self) -> float:
        """Return the seconds since the start of the first rank; all ranks get the same number."""
        return max(self.strategy.gather(time.perf_counter() - self.started))

    def seconds(self, part: str) -> float:
        """Return the seconds for `part`, a key of `SHARES`; the number is equal on all ranks."""
        return SHARES[part] * self.settings.seconds

    def beat_only(self, detail: str) -> None:
        """Record progress for the watchdog; `detail` is the current part."""
        self.watchdog.beat(QUALIFYING, detail=detail)

    def beat(self, detail: str) -> None:
        """Record for the watchdog that the part `detail` begins; wait until all ranks are there."""
        self.beat_only(detail)
        self.strategy.any(False)
        self.beat_only(detail)


def several(groups: group_rates.Groups) -> group_rates.Groups:
    """Return the groups of two or more ranks, because an all-reduce needs a second rank."""
    return [group for group in groups if len(group) > 1]


def _node(
    name: str, ranks: list[int], device: str, rows: list[Own], all_reduce: float | None
) -> NodeRates:
    first = rows[0]
    return NodeRates(
        name, ranks, device, torch.get_num_threads(), [row.gemm for row in rows],
        [row.triad for row in rows], first.read, first.reads_other,
        max(row.first for row in rows), first.again, all_reduce,
        [fault for row in rows for fault in row.faults],
    )


def _age() -> float:
    """Return the seconds since the start of this process (proc(5): starttime)."""
    fields = Path("/proc/self/stat").read_text(encoding="ascii", errors="replace")
    ticks = int(fields.rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
