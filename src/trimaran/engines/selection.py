"""The one list of engines, and which one a command means.

A new engine is a module with a class of the shape of `Engine`, and its row in `ENGINES`.
Who only judges a run asks the row, and imports no engine.
"""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, NamedTuple

from trimaran.engines import Engine
from trimaran.errors import UsageError, unknown_name
from trimaran.launch.specification import CommandLine, LaunchSpec

if TYPE_CHECKING:
    from trimaran.engines.build_steps import Container


class Row(NamedTuple):
    """An engine: its class, and what renders a launch specification as its command.

    Attributes:
        place: module and class.
        renderer: module and function.
        programs: names of the program that its command runs; of no container, none.
    """

    place: str
    renderer: str
    programs: tuple[str, ...] = ()

    def render(self, spec: LaunchSpec) -> CommandLine:
        """Return the command of `spec`.

        Raises:
            UsageError: the image has no app to launch.
        """
        line: CommandLine = pkgutil.resolve_name(self.renderer)(spec)
        return line


ENGINES = {
    "apptainer": Row("trimaran.engines.apptainer:Apptainer", "trimaran.launch.apptainer:render",
                     ("apptainer", "singularity")),
    "podman": Row("trimaran.engines.podman:Podman", "trimaran.launch.podman:render", ("podman",)),
    "host": Row("trimaran.engines.host:Host", "trimaran.launch.host:render"),
}
"""By name. A class is imported when it is asked for: most commands need one, or none."""

AUTO = "auto"
"""Apptainer where it is installed, else the host."""


def every() -> dict[str, type[Engine]]:
    """Return all engines, by name."""
    return {name: pkgutil.resolve_name(row.place) for name, row in ENGINES.items()}


def containers() -> dict[str, type[Container]]:
    """Return the engines that shield a run from the host, by name: only theirs is evidence."""
    from trimaran.engines.build_steps import Container

    return {name: found for name, found in every().items() if issubclass(found, Container)}


def row(name: str) -> Row:
    """Return the row of the engine `name` of a record; of an unknown one that of the host."""
    return ENGINES.get(name, ENGINES["host"])


def is_container(name: str) -> bool:
    """Return whether the engine `name` shields a run from the host; an unknown one does not."""
    return bool(row(name).programs)


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
