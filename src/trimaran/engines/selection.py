"""Which engine: the one that was asked for, or Apptainer where it is installed, else the host."""

from __future__ import annotations

import shutil

from trimaran.engines import Engine
from trimaran.errors import RunError, unknown_name

NAMES = ("apptainer", "podman", "host")
_PROGRAMS = {"apptainer": ("apptainer",), "podman": ("buildah", "podman")}


def select(name: str | None) -> Engine:
    """Return the engine called `name`; None or "auto" chooses.

    Raises:
        UsageError: an unknown name.
        RunError: the engine is asked for and not installed.
    """
    if name in (None, "", "auto"):
        name = "apptainer" if shutil.which("apptainer") else "host"
    if name not in NAMES:
        raise unknown_name("engine", str(name), NAMES)
    for program in _PROGRAMS.get(name, ()):
        if shutil.which(program) is None:
            raise RunError(
                f"the engine {name} needs {program}, which is not on PATH",
                hint="`trimaran doctor` shows what is there; ENGINE=host needs no container",
            )
    return _make(name)


def _make(name: str) -> Engine:
    # Imported here: each engine brings its own client, and one run needs one of them.
    if name == "apptainer":
        from trimaran.engines.apptainer import Apptainer

        return Apptainer()
    if name == "podman":
        from trimaran.engines.oci import Podman

        return Podman()
    from trimaran.engines.host import Host

    return Host()
