"""Which engine: the one that was asked for, or Apptainer where it is installed, else the host."""

from __future__ import annotations

from trimaran.engines import Engine
from trimaran.errors import unknown_name

NAMES = ("apptainer", "podman", "host")

CHOICES = ("auto", *NAMES)


def select(name: str | None) -> Engine:
    """Return the engine called `name`; None or "auto" chooses.

    Raises:
        UsageError: an unknown name.
        BuildError: the engine is asked for and not installed.
    """
    # Imported here: each engine brings its own client, and one run needs one of them.
    if name in {None, "", "auto"}:
        from trimaran.engines.apptainer import program

        name = "apptainer" if program() else "host"
    if name == "apptainer":
        from trimaran.engines.apptainer import Apptainer

        return Apptainer()
    if name == "podman":
        from trimaran.engines.oci import Podman

        return Podman()
    if name == "host":
        from trimaran.engines.host import Host

        return Host()
    raise unknown_name("engine", str(name), CHOICES)
