"""The main memory of the node, and the memory limits that control groups set.

Batch systems and container engines set these limits: cgroups(7) of the Linux manual pages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

CGROUPS = Path("/sys/fs/cgroup")
MEMORY = Path("/proc/meminfo")


class GroupFiles(NamedTuple):
    """The names of the files and keys that describe the memory of a control group.

    Attributes:
        limit: name of the file with the limit in bytes.
        used: name of the file with the bytes in use.
        cached: keys of `memory.stat` that count the pages of cached files, which can be freed.
    """

    limit: str
    used: str
    cached: tuple[str, str]


VERSION_1 = GroupFiles("memory.limit_in_bytes", "memory.usage_in_bytes",
                       ("total_inactive_file", "total_active_file"))
VERSION_2 = GroupFiles("memory.max", "memory.current", ("inactive_file", "active_file"))


def free_bytes(memory: Path = MEMORY, cgroups: Path = CGROUPS, own: str | None = None) -> int:
    """Return the bytes of main memory that this process can still allocate.

    Args:
        memory: file with the state of the whole node.
        cgroups: folder of the control groups (version 1 or 2), whose limits also apply.
        own: content of /proc/self/cgroup, which lists the control groups of this process; by
            default, the file is read.
    """
    left = [max(0, limit - used) for limit, used in _limits(cgroups, own)]
    return min([field_bytes(memory, "MemAvailable"), *left])


def total_bytes(memory: Path = MEMORY) -> int:
    """Return the bytes of main memory of the node."""
    return field_bytes(memory, "MemTotal")


def smallest_limit(cgroups: Path = CGROUPS, own: str | None = None) -> int | None:
    """Return the smallest limit of the control groups in bytes, or None if there is no limit.

    For the arguments, see `free_bytes`.
    """
    return min((limit for limit, _ in _limits(cgroups, own)), default=None)


def field_bytes(file: Path, key: str) -> int:
    """Return the value of `key` in bytes.

    Args:
        file: /proc/meminfo, or /proc/PID/status: proc(5). Its values are in KiB, although it
            contains "kB".
        key: name of the field.
    """
    # The name of a process may contain any bytes.
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    line = next(line for line in lines if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024


def _limits(cgroups: Path, own: str | None) -> Iterator[tuple[int, int]]:
    """Yield limit and used memory, in bytes, of each control group of this process with a limit."""
    if own is None:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="replace")
    for line in own.splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root, names = (cgroups / "memory", VERSION_1) if controllers else (cgroups, VERSION_2)
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            with contextlib.suppress(OSError, ValueError):  # no such file, or the word "max"
                limit = int((folder / names.limit).read_text(encoding="ascii"))
                yield limit, _used(folder, names)


def _used(group: Path, names: GroupFiles) -> int:
    """Return the bytes in use by a control group, without cached files, which can be freed."""
    used = int((group / names.used).read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            key, _, count = line.partition(" ")
            if key in names.cached:
                used -= int(count)
    return max(0, used)
