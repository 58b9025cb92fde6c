"""Where things are: the definitions, of a checkout or of this installation, and the cache."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from trimaran.errors import UsageError

SHARE = Path(__file__).resolve().parent / "share"
"""What a wheel carries of the checkout that it was made of: recipes, containers and apps."""


def repository() -> Path:
    """Return the folder with recipes, containers and apps.

    That is `$TRIMARAN_ROOT`, else the checkout that this package lies in, else what was
    installed with it.

    Raises:
        UsageError: there are none.
    """
    named = os.environ.get("TRIMARAN_ROOT")
    places = [Path(named).absolute()] if named else [Path(__file__).resolve().parents[2], SHARE]
    for root in places:
        if (root / "recipes").is_dir() and (root / "containers").is_dir():
            return root
    raise UsageError(
        f"no recipes/ and containers/ in {places[0]}",
        hint="install a wheel, or from a checkout (`make setup`), or set TRIMARAN_ROOT to one",
    )


def is_installed(path: Path) -> bool:
    """Return whether `path` came with a wheel: it belongs to no checkout, and nobody edits it."""
    return path.resolve().is_relative_to(SHARE)


def refuse_installed(path: Path) -> None:
    """Refuse to change a definition that came with a wheel: an update would undo it.

    Raises:
        UsageError: `path` is such a one.
    """
    if is_installed(path):
        raise UsageError(
            f"{path} was installed with trimaran and is not to be changed",
            hint="do this in a checkout, or set TRIMARAN_ROOT to one",
        )


def cache(*parts: str) -> Path:
    """Return a path under the cache (`$TRIMARAN_CACHE`, else the user's cache); not created.

    It is absolute: commands and records name it, and are used in other folders.

    Raises:
        UsageError: nothing says where it is.
    """
    named = os.environ.get("TRIMARAN_CACHE")
    root = Path(named) if named else user_cache_path("trimaran")
    if root.parts[:1] == ("~",):
        raise UsageError(
            "no home folder is known, and so no place for the cache",
            hint="set HOME, or TRIMARAN_CACHE to a folder",
        )
    return root.absolute().joinpath(*parts)
