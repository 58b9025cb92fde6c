"""List the engines, and select an engine by name.

A new engine needs a module with a class that implements `Engine`, and an entry in `ENGINES`. Code
that only judges a run uses this entry and does not import the class.
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
    """The description of an engine: where its class and its rendering function are.

    The rendering function converts a launch specification to a command.

    Attributes:
        place: the class, as `module:name`.
        renderer: the function, as `module:name`.
        programs: names that the program of a container engine can have in a command; () if the
            engine is not a container engine.
    """

    place: str
    renderer: str
    programs: tuple[str, ...] = ()

    def render(self, spec: LaunchSpec) -> CommandLine:
        """Render the launch specification `spec` as a command for this engine.

        Raises:
            UsageError: the image has no app to launch.
        """
        line: CommandLine = pkgutil.resolve_name(self.renderer)(spec)
        return line


ENGINES = {
    "apptainer": Row("trimaran.engines.apptainer:Apptainer", "trimaran.launch.apptainer:render",
                     ("apptainer", "singularity")),
    "podman": Row("trimaran.engines.podman:Podman", "trimaran.launch.podman:render", ("podman",)),
    "host": Row("trimaran.engines.host:Host", "trimaran.launch.specification:host_command"),
}
"""A dictionary that maps the name of an engine to its description.

The class of an engine is imported only when it is used.
"""

AUTO = "auto"
"""The name that selects the engine Apptainer if it is installed, else the host engine."""


def every() -> dict[str, type[Engine]]:
    """Return all engines, by name."""
    return {name: pkgutil.resolve_name(row.place) for name, row in ENGINES.items()}


def containers() -> dict[str, type[Container]]:
    """Return the container engines by name; only their runs can be evidence."""
    from trimaran.engines.build_steps import Container

    return {name: found for name, found in every().items() if issubclass(found, Container)}


def row(name: str) -> Row:
    """Return the description of the engine `name`, or of the host engine if the name is unknown."""
    return ENGINES.get(name, ENGINES["host"])


def is_container(name: str) -> bool:
    """Return whether `name` is a container engine; False for an unknown name."""
    return bool(row(name).programs)


def select(name: str | None) -> Engine:
    """Return the engine called `name`.

    For None or "auto", return Apptainer if it is installed, or else the host engine.

    Raises:
        UsageError: the name is unknown.
        BuildError: the engine is not installed.
    """
    if name in {None, "", AUTO}:
        from trimaran.engines.apptainer import program

        name = "apptainer" if program() else "host"
    if name not in ENGINES:
        raise unknown_name("engine", str(name), (AUTO, *ENGINES))
    engine: Engine = pkgutil.resolve_name(ENGINES[str(name)].place)()
    return engine


def no_images(engine: str) -> UsageError:
    """Return the error for an operation on images with `engine`, which has no images."""
    return UsageError(f"the {engine} engine has no images", code="engine-unsuitable",
                      hint=f"use --engine {' or '.join(containers())}")
