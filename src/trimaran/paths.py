"""Where things are: the checkout that holds the definitions, and the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from trimaran.errors import UsageError


def repository() -> Path:
    """Return the root of the checkout: `$TRIMARAN_ROOT`, or the one this package lies in.

    Raises:
        UsageError: neither holds `recipes/` and `containers/`.
    """
    named = os.environ.get("TRIMARAN_ROOT")
    root = Path(named).absolute() if named else Path(__file__).resolve().parents[2]
    if not ((root / "recipes").is_dir() and (root / "containers").is_dir()):
        raise UsageError(
            f"no recipes/ and containers/ in {root}",
            hint="install from a checkout (`make setup`) or set TRIMARAN_ROOT to one",
        )
    return root


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
