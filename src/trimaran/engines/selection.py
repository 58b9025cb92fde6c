"""The one list of engines, and which one a command means.

A new engine is a module with a class of the shape of `Engine`, and its row in `ENGINES`.
Who only judges a run asks the row, and imports no engine.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, NamedTuple

from trimaran.engines import Engine
from trimaran.errors import UsageError, unknown_name

if TYPE_CHECKING:
    from trimaran.engines.building import Container


class Row(NamedTuple):
    """An engine: its class, and of a container what its commands begin with, one of these."""

    place: str
    programs: tuple[str, ...] = ()


ENGINES = {
    "apptainer": Row("trimaran.engines.apptainer:Apptainer", ("apptainer", "singularity")),
    "podman": Row("trimaran.engines.oci:Podman", ("podman",)),
    "host": Row("trimaran.engines.host:Host"),
}
"""By name. A class is imported when it is asked for: most commands need one, or none."""

AUTO = "auto"
"""Apptainer where it is installed, else the host."""


def every() -> dict[str, type[Engine]]:
    """Return all engines, by name."""
    return {name: pkgutil.resolve_name(row.place) for name, row in ENGINES.items()}


def containers() -> dict[str, type[Container]]:
    """Return the engines that shield a run from the host, by name: only theirs is evidence."""
    from trimaran.engines.building import Container

    return {name: found for name, found in every().items() if issubclass(found, Container)}


def programs(name: str) -> tuple[str, ...]:
    """Return what commands of the engine `name` begin with; none where it is no container."""
    return ENGINES[name].programs if name in ENGINES else ()


def select(name: str | None) -> Engine:
    """Return the engine called `name`; None or "auto" chooses.

    Raises:
        UsageError: an unknown name.
        BuildError: the engine is asked for and not installed.
    """
    if name in {None, "", AUTO}:
        from trimaran.engines.apptainer import program

        name = "apptainer" if program() else "host"
    if name not in ENGINES:
        raise unknown_name("engine", str(name), (AUTO, *ENGINES))
    engine: Engine = pkgutil.resolve_name(ENGINES[str(name)].place)()
    return engine


def no_images(engine: str) -> UsageError:
    """Return the error for what takes images, which `engine` has none of."""
    return UsageError(f"the {engine} engine has no images",
                      hint=f"use --engine {' or '.join(containers())}")
