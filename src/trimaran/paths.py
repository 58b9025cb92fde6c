"""Find the definitions (in a checkout or in the installation) and the cache."""

from __future__ import annotations

import itertools
import os
import pwd
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.errors import UsageError, unknown_name

SHARE = Path(__file__).resolve().parent / "share"
"""Folder with the recipes, containers, apps and evidence that a wheel contains."""

OWN = "TRIMARAN_RECIPES"
"""Environment variable with the user's folders of definitions, separated as in PATH."""


def repository() -> Path:
    """Return the folder with recipes, containers and apps.

    It is `$TRIMARAN_ROOT`, or else the checkout of this package, or else the folder that was
    installed with the package.

    Raises:
        UsageError: the folder has no subfolders `recipes` and `containers`.
    """
    named = os.environ.get("TRIMARAN_ROOT")
    places = [Path(named).absolute()] if named else [Path(__file__).resolve().parents[2], SHARE]
    for root in places:
        if (root / "recipes").is_dir() and (root / "containers").is_dir():
            return root
    raise UsageError(
        f"{places[0]} contains no recipes/ and containers/", code="definitions-missing",
        hint="install a wheel or a checkout (`make setup`), or set TRIMARAN_ROOT to a checkout",
    )


def use_own(folders: Sequence[Path], environ: MutableMapping[str, str]) -> None:
    """Make this process and its child processes find the definitions in `folders`, too.

    The folders are stored in the variable `OWN` of `environ`.

    Raises:
        UsageError: a folder is missing or does not have the layout of a checkout.
    """
    for folder in folders:
        if os.pathsep in str(folder):
            raise UsageError(f"{folder}: the name of a folder of recipes must not contain"
                             f" '{os.pathsep}'", code="name-invalid")
        _check_own(folder)
    environ[OWN] = os.pathsep.join(str(folder.absolute()) for folder in folders)


def folders() -> list[Path]:
    """Return the folders with definitions: Trimaran's folder, then the user's own folders.

    Raises:
        UsageError: a folder is missing or does not have the layout of a checkout.
    """
    found = {repository().resolve(): repository()}
    for word in filter(None, os.environ.get(OWN, "").split(os.pathsep)):
        own = Path(word).absolute()
        _check_own(own)
        found.setdefault(own.resolve(), own)
    return list(found.values())


def _check_own(folder: Path) -> None:
    layout = "the layout is recipes/<app>/, recipes/targets/, apps/, containers/"
    if not folder.is_dir():
        raise UsageError(f"the folder of recipes {folder} does not exist",
                         code="definitions-missing", hint=layout)
    if not (folder / "recipes").is_dir():
        if folder.name == "recipes":
            layout = f"name the folder above it: {folder.absolute().parent}"
        raise UsageError(f"{folder} contains no recipes/", code="definitions-missing", hint=layout)


@dataclass(frozen=True)
class Definitions:
    """The definition files of one kind (recipes, targets, data sets, ...) in all `folders`.

    Attributes:
        kind: the kind, for messages.
        patterns: glob patterns below a folder, such as `recipes/targets/*.yaml`.
        name: function that returns the name of the definition in a file, or None if the file
            contains a definition of another kind.
    """

    kind: str
    patterns: tuple[str, ...]
    name: Callable[[Path], str | None] = lambda path: path.stem

    def files(self) -> dict[str, Path]:
        """Return the definition files by name, sorted by name.

        Raises:
            UsageError: two files define the same name; neither takes precedence.
        """
        named: dict[str, Path] = {}
        for folder, pattern in itertools.product(folders(), self.patterns):
            for path in folder.glob(pattern):
                if (name := self.name(path)) is None:
                    continue
                if (other := named.setdefault(name, path)) != path:
                    raise UsageError(
                        f"two definitions have the name '{name}': {other} and {path}",
                        code="definition-ambiguous", hint="rename your own definition",
                    )
        return dict(sorted(named.items()))

    def names(self) -> list[str]:
        """Return the names of all definitions of this kind, sorted."""
        return list(self.files())

    def file_of(self, name: str) -> Path:
        """Return the path of the file with the definition `name`, such as a recipe or a target.

        Raises:
            UsageError: no file contains this definition; the hint lists similar names.
        """
        files = self.files()
        if name not in files:
            raise unknown_name(self.kind, name, list(files))
        return files[name]


def of_folder(path: Path) -> str:
    """Return the name of the folder that contains the file `path`.

    For some kinds of definitions, such as apps, this is the name of the definition.
    """
    return path.parent.name


def app(name: str) -> Path:
    """Return the folder of the app `name`; if none exists, the path in Trimaran's folder."""
    places = [folder / "apps" / name for folder in folders()]
    return next((place for place in places if place.is_dir()), places[0])


def is_installed(path: Path) -> bool:
    """Return True if `path` was installed from a wheel; users must not edit such a file."""
    return path.resolve().is_relative_to(SHARE)


def refuse_installed(path: Path) -> None:
    """Check that `path` was not installed from a wheel: an update would undo the change.

    Raises:
        UsageError: `path` was installed from a wheel.
    """
    if is_installed(path):
        raise UsageError(
            f"{path} was installed with Trimaran and must not be changed",
            code="definition-installed",
            hint="run the command in a checkout, or set TRIMARAN_ROOT to a checkout",
        )


def cache(*parts: str) -> Path:
    """Return a path in the cache (`$TRIMARAN_CACHE`, or else the user's cache); it need not exist.

    The path is absolute, because commands and records contain it and are used in other folders.

    Raises:
        UsageError: neither the variable nor a home folder is known.
    """
    root = _cache()
    if root is None:
        raise UsageError(
            "the home folder is unknown, so that there is no place for the cache",
            code="home-unknown",
            hint="set HOME or TRIMARAN_CACHE to the absolute path of a folder",
        )
    return root.absolute().joinpath(*parts)


def has_cache() -> bool:
    """Return True if the path of the cache is known."""
    return _cache() is not None


def _cache() -> Path | None:
    named = os.environ.get("TRIMARAN_CACHE")
    return Path(named) if named else of_user("XDG_CACHE_HOME", ".cache")


def of_user(variable: str, below: str) -> Path | None:
    """Return the folder `trimaran` in an XDG base directory; None if no home folder is known.

    Args:
        variable: the XDG variable, which is used if it contains an absolute path.
        below: the default folder below the home folder.
    """
    root = user_folder(variable, below)
    return root and root / "trimaran"


def user_folder(variable: str, below: str) -> Path | None:
    """Return an XDG base directory of the user; see `of_user`.

    The library platformdirs is not used: without a home folder, it returns `~` or ends the program.
    """
    named = os.environ.get(variable, "")
    if Path(named).is_absolute():
        return Path(named)
    own = home()
    return own and own / below


def home() -> Path | None:
    """Return $HOME if it is an absolute path, or else the home folder in the user database.

    None is returned if both are missing, as for a user whom the host cannot look up.
    """
    named = os.environ.get("HOME", "")
    if Path(named).is_absolute():
        return Path(named)
    try:
        found = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None
    return found if found.is_absolute() else None
