"""Names of Arm processors, which /proc/cpuinfo describes by two numbers instead of a name.

The numbers are those of `lscpu` (util-linux, sys-utils/lscpu-arm.c): the implementer, and the part
that the implementer made. Only processors of servers are listed.
"""

from __future__ import annotations

from collections.abc import Mapping

IMPLEMENTER, PART = "CPU implementer", "CPU part"
"""Names of the two fields in /proc/cpuinfo."""

NAMES = {
    "0x41 0xd07": "Arm Cortex-A57",
    "0x41 0xd08": "Arm Cortex-A72",
    "0x41 0xd0c": "Arm Neoverse-N1",
    "0x41 0xd40": "Arm Neoverse-V1",
    "0x41 0xd49": "Arm Neoverse-N2",
    "0x41 0xd4f": "Arm Neoverse-V2",
    "0x41 0xd83": "Arm Neoverse-V3AE",
    "0x41 0xd84": "Arm Neoverse-V3",
    "0x41 0xd8e": "Arm Neoverse-N3",
    "0x43 0x0af": "Cavium ThunderX2-99xx",
    "0x46 0x001": "Fujitsu A64FX",
    "0x48 0xd01": "HiSilicon Kunpeng-920",
    "0xc0 0xac3": "Ampere-1",
    "0xc0 0xac4": "Ampere-1a",
}
"""Implementer and part -> name of the processor core."""


def name(fields: Mapping[str, str]) -> str | None:
    """Return the name of the processor with these fields of /proc/cpuinfo.

    An unlisted processor is named by its two numbers. The result is None if the fields lack them.
    """
    if IMPLEMENTER not in fields or PART not in fields:
        return None
    return named(f"{fields[IMPLEMENTER]} {fields[PART]}")


def named(numbers: str) -> str:
    """Return the name of the processor with these numbers, such as `0x41 0xd4f`."""
    return NAMES.get(numbers, f"Arm processor {numbers}")
