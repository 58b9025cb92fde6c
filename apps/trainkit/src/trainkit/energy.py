"""The energy of a training: which rank reads which meter, and the sums over all ranks.

Each meter is read by only one rank: the first rank that can read it. Therefore the processor
packages of a node, a GPU that several ranks share, and two dies with one counter are each counted
once.

There are two kinds of devices: the GPUs of the ranks, and the processor packages with their memory.
Their energies are never added to each other. A kind is measured only if every rank can read the
meters of its devices, because a sum over only some of the devices would be too small.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trainkit.gpu_meters import gpu_meter
from trainkit.meters import CPU, GPU, About, Found, Gpu, Kind, Meter, MeterError, packages
from trainkit.strategy import Strategy

EVERY = 20.0
"""Age of the last reading, in seconds, above which `Energy.begin` reads the meters again.

RAPL counters restart at 0. Many counters, such as the counters of AMD processors and of the memory
of Xeons, restart after 65.5 kJ, which takes 65 s at `meters.MOST_WATTS`. Therefore two readings
must be less than 65 s apart. The time between two readings is at most `EVERY` plus one step.
"""


@dataclass
class Use:
    """The energy that the meters of one kind counted in some steps, as stored in checkpoints.

    Attributes:
        joules: label of a device -> joules.
        seconds: measured time in seconds.
        samples: samples of the steps, on all ranks.
        steps: number of the steps.
    """

    joules: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    samples: int = 0
    steps: int = 0

    @property
    def total(self) -> float:
        """The energy of all devices in joules."""
        return sum(self.joules.values())

    @property
    def watts(self) -> float:
        """The mean power in watts: energy divided by time."""
        return self.total / self.seconds if self.seconds else 0.0

    @property
    def per_sample(self) -> float:
        """The energy per sample in joules."""
        return self.total / self.samples if self.samples else 0.0

    def add(self, other: Use) -> None:
        """Add the energy, time, samples and steps of `other`."""
        for label, joules in other.joules.items():
            self.joules[label] = self.joules.get(label, 0.0) + joules
        self.seconds += other.seconds
        self.samples += other.samples
        self.steps += other.steps


Uses = dict[str, Use]
"""Kind of device ("cpu" or "gpu") -> energy that all devices of this kind used."""


def uses_of(state: Mapping[str, Any]) -> Uses:
    """Return the energy in `state`, which `dataclasses.asdict` made for a checkpoint."""
    return {kind: Use(**use) for kind, use in state.items()}


def owners(readable: Sequence[Sequence[About]]) -> dict[str, int]:
    """Return which rank reads each meter: identity of the meter -> first rank that can read it.

    `readable` lists the meters that each rank can read, in the order of the ranks.
    """
    found: dict[str, int] = {}
    for rank, every in enumerate(readable):
        for about in every:
            found.setdefault(about.identity, rank)
    return found


def find(gpu: Gpu | None) -> Found:
    """Return the meters of this machine's processor packages, and of `gpu` if it is not None."""
    found = Found()
    wanted: dict[Kind, Callable[[], list[Meter]]] = {CPU: packages}
    if gpu is not None:
        wanted[GPU] = lambda: [gpu_meter(gpu)]
    for kind, open_all in wanted.items():
        try:
            found.meters += open_all()
        except MeterError as error:
            found.not_readable[kind] = str(error)
        except ImportError as error:
            found.not_readable[kind] = f"the package zeus cannot be imported ({error})"
        except Exception as error:  # a fault of a driver must not end a training
            found.not_readable[kind] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found


class _Told(NamedTuple):
    """A message by which a rank tells all ranks which energy meters it can read.

    For each kind of device whose meters it cannot read, the message contains the reason.
    """

    readable: list[About]
    not_readable: dict[Kind, str]


class Energy:
    """The meters of a job; each rank reads only the meters that it owns (see `owners`).

    Args:
        strategy: the strategy that connects the ranks.
        found: the meters that this rank can read.

    Attributes:
        kind: the kind of device that this rank trains on.
        not_readable: kind -> reason why its energy is not measured, or is no longer measured.
    """

    def __init__(self, strategy: Strategy, found: Found) -> None:
        told = strategy.gather(
            _Told([meter.about for meter in found.meters], dict(found.not_readable))
        )
        self._strategy = strategy
        self.kind: Kind = CPU if strategy.gpu() is None else GPU
        self.not_readable: dict[Kind, str] = {}
        for rank, one in enumerate(told):
            for kind, reason in one.not_readable.items():
                text = f"rank {rank}: {reason}" if len(told) > 1 else reason
                self.not_readable.setdefault(kind, text)
        owner = owners([one.readable for one in told])
        every = {about.identity: about for one in told for about in one.readable}
        self._abouts = [one for one in every.values() if one.kind not in self.not_readable]
        self._own = {
            meter.about.identity: meter for meter in found.meters
            if owner[meter.about.identity] == strategy.rank
            and meter.about.kind not in self.not_readable
        }
        self._gained: dict[str, float] = {}
        self._faults: dict[Kind, str] = {}
        self._since: float | None = None
        self._read = 0.0

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of devices whose energy is measured on all ranks."""
        return list(dict.fromkeys(about.kind for about in self._abouts))

    def facts(self) -> dict[str, Any]:
        """Return the devices of each kind, or why they cannot be read, for `environment.json`."""
        facts: dict[str, Any] = {
            kind: sorted(about.label for about in self._abouts if about.kind == kind)
            for kind in self.kinds
        }
        return facts | {kind: f"not readable: {text}" for kind, text in self.not_readable.items()}

    def begin(self) -> None:
        """Begin to measure; during a measurement, read the meters if the last reading is old.

        The method does not communicate with other ranks.
        """
        if not self._abouts:
            return
        now = time.monotonic()
        if self._since is None:
            for meter in self._own.values():
                with self._noted(meter):
                    meter.start()
            self._since = self._read = now
        elif now - self._read > EVERY:
            self._advance(now)

    def collect(self) -> Uses:
        """End the measurement that `begin` began; return the energy of each kind, over all ranks.

        All ranks must call this method. In the result, `samples` and `steps` are 0, because only
        the caller counts them.
        """
        if not self._abouts or self._since is None:
            return {}
        now = time.monotonic()
        self._advance(now)
        seconds = now - self._since
        gained = [self._gained.get(about.identity, 0.0) for about in self._abouts]
        *joules, faults = self._strategy.sum([*gained, float(len(self._faults))])
        self._gained, self._since = {}, None
        uses = {
            kind: Use({about.label: 0.0 for about in self._abouts if about.kind == kind}, seconds)
            for kind in self.kinds
        }
        for about, counted in zip(self._abouts, joules, strict=True):
            uses[about.kind].joules[about.label] += counted
        if faults:
            self._give_up()
        return {kind: use for kind, use in uses.items() if kind in self.kinds}

    def _advance(self, now: float) -> None:
        """Read the meters of this rank; add their energy since the last reading."""
        self._read = now
        for identity, meter in self._own.items():
            with self._noted(meter):
                self._gained[identity] = self._gained.get(identity, 0.0) + meter.gained()

    @contextlib.contextmanager
    def _noted(self, meter: Meter) -> Iterator[None]:
        """Catch a MeterError of `meter` in the `with` block; store its text for `collect`."""
        try:
            yield
        except MeterError as error:
            self._faults.setdefault(meter.about.kind, str(error))

    def _give_up(self) -> None:
        """Stop measuring each kind of device if a rank can no longer read a meter of this kind."""
        for faults in self._strategy.gather(dict(self._faults)):
            for kind, reason in faults.items():
                self.not_readable.setdefault(kind, reason)
        self._faults = {}
        self._abouts = [one for one in self._abouts if one.kind not in self.not_readable]
        self._own = {identity: meter for identity, meter in self._own.items()
                     if meter.about.kind not in self.not_readable}


def open_meters(strategy: Strategy) -> Energy:
    """Return the energy meters of the job; all ranks must call this function."""
    if reason := strategy.unmetered:  # a sum over some of the devices would be wrong
        return Energy(strategy, Found([], {CPU: reason, GPU: reason}))
    return Energy(strategy, find(strategy.gpu()))
