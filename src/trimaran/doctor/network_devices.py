"""Read the network devices of a node from its facts: interfaces, ports, and their fabrics."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from trimaran.doctor.facts import NodeFacts

SLINGSHOT, ETHERNET = "slingshot", "ethernet"

LIBRARIES = {
    "infiniband": ("verbs",), "roce": ("verbs",), "slingshot": ("libfabric",),
    "efa": ("libfabric", "verbs"), "omnipath": ("libfabric",),
}
"""A dictionary that maps a fabric to the libraries that a program needs to use the fabric.

The names of the libraries are keys of `ImageFacts.values`.
"""

DEVICE_FILES = {
    "infiniband": "/dev/infiniband/uverbs", "roce": "/dev/infiniband/uverbs",
    "efa": "/dev/infiniband/uverbs", "omnipath": "/dev/hfi1_", "slingshot": "/dev/cxi",
}
"""A dictionary that maps a fabric to the prefix of its device files, which programs open."""


@dataclass(frozen=True)
class Port:
    """A port of a fast network device.

    Attributes:
        name: `DEVICE/PORT`, such as `mlx5_0/1`; for Slingshot the name of the device.
        fabric: a value of the key `fabric` of the site file.
        active: whether the link is up.
        state: state and rate, as the kernel prints them.
    """

    name: str
    fabric: str
    active: bool
    state: str

    @property
    def device(self) -> str:
        """The name of the device."""
        return self.name.partition("/")[0]


def ports(facts: NodeFacts) -> list[Port]:
    """Return the ports of all fast network devices.

    The kernel describes InfiniBand, RoCE, Omni-Path and EFA below /sys/class/infiniband (Linux,
    Documentation/ABI/stable/sysfs-class-infiniband), and the driver of Slingshot's network cards
    below /sys/class/cxi. /sys/class/cxi has no state of a card, so the state of its network
    interface hsnN is used.
    """
    found = []
    for name, text in facts.under("port").items():
        fields = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        state = fields.get("state", "").partition(": ")[2] or fields.get("state", "")
        found.append(Port(name, _fabric(name, fields), state == "ACTIVE",
                          f"{state} {fields.get('rate', '')}".strip()))
    states = interfaces(facts)
    for name in facts.under("cxi"):
        state = states.get(name.replace("cxi", "hsn"), "unknown")
        found.append(Port(name, SLINGSHOT, state != "down", state))
    return found


def _fabric(name: str, fields: dict[str, str]) -> str:
    driver = fields.get("driver", "")
    if driver == "hfi1" or name.startswith("hfi1_"):
        return "omnipath"
    if driver == "efa" or name.startswith("efa_"):
        return "efa"
    return "infiniband" if fields.get("layer") == "InfiniBand" else "roce"


def interfaces(facts: NodeFacts) -> dict[str, str]:
    """Return a dictionary that maps each network interface to its state: up, down or unknown.

    Source: Linux, operstates.rst.
    """
    return {name: (text.splitlines() or ["unknown"])[0].strip() or "unknown"
            for name, text in facts.under("interface").items()}


def nccl_matches(value: str, names: Iterable[str]) -> list[str]:
    """Return those of `names` that a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA selects.

    A value is a list of prefixes of names. With a leading `^`, it excludes these names; with a
    leading `=`, it is a list of whole names (NCCL user guide, environment variables). A port after
    a colon is ignored.
    """
    excluding = value.startswith("^")
    exact = value.removeprefix("^").startswith("=")
    words = [word.partition(":")[0] for word in re.sub(r"^\^?=?", "", value).split(",") if word]

    def listed(name: str) -> bool:
        return any(name == word if exact else name.startswith(word) for word in words)

    return [name for name in names if listed(name) != excluding]


def listed_matches(value: str, names: Iterable[str]) -> list[str]:
    """Return those of `names` that the list `value` selects.

    Gloo, Open MPI and UCX read such lists. With a leading `^`, the list excludes its names. `*`
    stands for any characters. A port after a colon is ignored.
    """
    excluding = value.startswith("^")
    words = [word.partition(":")[0] for word in value.removeprefix("^").split(",") if word]
    return [name for name in names
            if any(word == "all" or fnmatchcase(name, word) for word in words) != excluding]


def unknown_names(value: str, names: Iterable[str]) -> list[str]:
    """Return the items of the list `value` that match none of `names`."""
    known = list(names)
    return [word for word in value.removeprefix("^").split(",")
            if word and not listed_matches(word, known)]
