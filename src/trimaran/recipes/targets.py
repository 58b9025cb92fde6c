"""Targets: the hardware of the nodes for which the expected results of recipes are valid."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from trimaran import paths, strict
from trimaran.hostfacts import FLAGS, HostFacts
from trimaran.recipes.hardware import Hardware


class Node(strict.Model):
    """The hardware facts of one node, as its operating system reports them."""

    architecture: Literal["x86_64", "aarch64", "ppc64le"]
    cores: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="number of cores for the run; null: any number"
    )
    sockets: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="number of sockets, over which a job distributes its tasks"
    )
    memory_gib: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="minimum memory in GiB; null: any size"
    )
    cpu_flags: list[str] = Field(default=[], description="required instruction sets")
    accelerators: Annotated[int, Field(ge=0)] = 0
    accelerator: str | None = Field(
        default=None, description="part of the name that the driver gives each accelerator"
    )

    @field_validator("cpu_flags")
    @classmethod
    def _known_flags(cls, flags: list[str], info: ValidationInfo) -> list[str]:
        architecture = info.data.get("architecture")
        known = FLAGS[architecture] if architecture else flags
        if unknown := [flag for flag in flags if flag not in known]:
            near = get_close_matches(unknown[0], known, n=3, cutoff=0.4)
            raise ValueError(
                f"{architecture} has no instruction set '{unknown[0]}' (known:"
                f" {', '.join(near or known)})"
            )
        return flags


Quantity = Literal["gemm-bfloat16", "gemm-float32", "memory", "all-reduce-node", "all-reduce"]
"""A quantity that a qualification measures.

`gemm-*` is the speed of a matrix product in TFLOP/s. `memory` is the memory bandwidth of a device
(STREAM triad) in GB/s. `all-reduce-node` and `all-reduce` are the bus bandwidths in GB/s of an
all-reduce within a node and over all nodes.
"""


class Limit(strict.Model):
    """A published value of a quantity, and the limits that its source states, if any."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    warn: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="a lower value is a warning; null: 10 % below the value"
    )
    fail: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="a lower value is a failure; null: 25 % below the value"
    )
    bytes: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="size of the all-reduce for which the value is valid"
    )
    source: str = Field(description="publication of the value")

    @property
    def warn_below(self) -> float:
        """The value below which a qualification warns about a device or node."""
        return self.warn if self.warn is not None else 0.9 * self.value

    @property
    def fail_below(self) -> float:
        """The value below which a device or node fails its qualification."""
        return self.fail if self.fail is not None else 0.75 * self.value

    @model_validator(mode="after")
    def _ordered(self) -> Limit:
        if not self.fail_below < self.warn_below < self.value:
            raise ValueError(f"fail: {self.fail_below:g}, warn: {self.warn_below:g} and value:"
                             f" {self.value:g} do not increase")
        return self


class Target(strict.Model):
    """The hardware facts of a target, without accounts and paths of a site."""

    schema_: Literal[1] = Field(alias="schema")
    summary: str
    node: Node
    hardware: Hardware | None = Field(
        default=None, description="published facts for `trimaran plan`; null: it cannot predict"
    )
    qualification: dict[Quantity, Limit] = Field(
        default_factory=dict, description="published values for `trimaran doctor --measure`"
    )


_DEFINED = paths.Definitions("target", ("recipes/targets/*.yaml",))
names, file_of = _DEFINED.names, _DEFINED.file_of


def load(name: str) -> Target:
    """Load the target `name`.

    Raises:
        UsageError: No target has this name (similar names are suggested), or its file has faults.
    """
    return strict.load(Target, file_of(name))


def unlike(name: str, hosts: Iterable[HostFacts]) -> list[str]:
    """Return the differences between the machines `hosts` and the target `name`.

    A difference that several machines have is listed once.

    Raises:
        UsageError: No target has this name, or its file has faults.
    """
    target = load(name)
    return list(dict.fromkeys(text for host in hosts for text in differences(target, host)))


def differences(target: Target, host: HostFacts) -> list[str]:
    """Return the differences between `host` and `target`; empty if `host` matches `target`."""
    node = target.node
    found = []
    if host.architecture != node.architecture:
        found.append(f"architecture {host.architecture}, not {node.architecture}")
    if node.cores is not None and host.cores != node.cores:
        found.append(f"{host.cores} cores, not {node.cores}")
    if node.memory_gib is not None and host.memory_gib < node.memory_gib:
        found.append(f"{host.memory_gib:.0f} GiB of memory, less than {node.memory_gib:g}")
    missing = sorted(set(node.cpu_flags) - set(host.cpu_flags))
    if missing:
        found.append(f"processor without {', '.join(missing)}")
    if len(host.accelerators) != node.accelerators:
        found.append(f"{len(host.accelerators)} accelerators, not {node.accelerators}")
    others = {name for name in host.accelerators if (node.accelerator or "") not in name}
    if others:
        found.append(f"accelerators {', '.join(sorted(others))}, not {node.accelerator}")
    return found
