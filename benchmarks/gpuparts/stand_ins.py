"""Stand-ins for packages that a bare PyTorch installation lacks.

The apps import NVIDIA DALI, Pillow and other packages for their input pipelines and pictures. The
benchmarks on GPUs do not call these packages, because their samples are synthetic. A stand-in can
be imported, and its attributes can be named and used as decorators; nothing is computed with it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

PACKAGES = ("nvidia.dali", "PIL", "av", "h5py", "lmdb")
"""Packages that the apps import for inputs, pictures and exports."""


class StandIn(ModuleType):
    """An empty module; each of its attributes is another stand-in."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        """Return a stand-in for an attribute.

        Raises:
            AttributeError: `name` begins with two underscores.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(f"{self.__name__}.{name}")

    def __call__(self, *given: Any, **_: Any) -> Any:
        """Return the only positional argument if it is callable; otherwise return this stand-in.

        Thus a stand-in can be used as a decorator, which returns the function unchanged.
        """
        return given[0] if len(given) == 1 and callable(given[0]) else self


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """An import finder that provides stand-ins for packages that are not installed.

    Args:
        packages: names of missing packages, for which it provides stand-ins.
    """

    def __init__(self, packages: Sequence[str]) -> None:
        # The parent of a missing package may be missing, too: `nvidia` of `nvidia.dali`.
        self._packages = {*packages, *(one.partition(".")[0] for one in packages)}

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the module specification of a stand-in, or None for any other module."""
        if any(name == one or name.startswith(f"{one}.") for one in self._packages):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return the stand-in."""
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a stand-in has no content."""


def install() -> list[str]:
    """Install stand-ins for the packages that are missing, and return their names."""
    missing = [one for one in PACKAGES if is_missing(one)]
    if missing:
        sys.meta_path.append(Finder(missing))
    return missing


def is_missing(name: str) -> bool:
    """Return whether a package is not installed, even if it has a stand-in."""
    try:
        spec = importlib.util.find_spec(name)
    except ModuleNotFoundError:  # its parent is missing
        return True
    return spec is None or isinstance(spec.loader, Finder)
