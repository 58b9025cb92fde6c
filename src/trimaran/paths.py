"""Where things are: the definitions, of a checkout or of this installation, and the cache."""

from __future__ import annotations

import itertools
import os
import pwd
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.errors import UsageError, unknown_name

SHARE = Path(__file__).resolve().parent / "share"
"""What a wheel carries of the checkout that it was made of: recipes, containers, apps, evidence."""

OWN = "TRIMARAN_RECIPES"
"""Variable that names the user's own folders of definitions, in the form of PATH."""


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


def use_own(folders: Sequence[Path], environ: MutableMapping[str, str]) -> None:
    """Have definitions found in `folders`, too, by this process and those that it starts.

    Raises:
        UsageError: a folder is not there, or not laid out as a checkout.
    """
    for folder in folders:
        if os.pathsep in str(folder):
            raise UsageError(f"{folder}: the name of such a folder cannot have '{os.pathsep}'")
        _check_own(folder)
    environ[OWN] = os.pathsep.join(str(folder.absolute()) for folder in folders)


def folders() -> list[Path]:
    """Return the folders that hold definitions: Trimaran's, then the user's own.

    Raises:
        UsageError: one is not there, or not laid out as a checkout.
    """
    found = {repository().resolve(): repository()}
    for word in filter(None, os.environ.get(OWN, "").split(os.pathsep)):
        own = Path(word).absolute()
        _check_own(own)
        found.setdefault(own.resolve(), own)
    return list(found.values())


def _check_own(folder: Path) -> None:
    layout = "it is laid out as Trimaran's: recipes/<app>/, recipes/targets/, apps/, containers/"
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder of recipes", hint=layout)
    if not (folder / "recipes").is_dir():
        if folder.name == "recipes":
            layout = f"name the folder above it: {folder.absolute().parent}"
        raise UsageError(f"no recipes/ in {folder}", hint=layout)


@dataclass(frozen=True)
class Definitions:
    """The files below any of `folders` that define the things of one kind.

    Attributes:
        kind: what a message calls such a thing.
        patterns: of paths below such a folder, such as `recipes/targets/*.yaml`.
        name: what the thing in a file is called; None: the file is of another kind.
    """

    kind: str
    patterns: tuple[str, ...]
    name: Callable[[Path], str | None] = lambda path: path.stem

    def files(self) -> dict[str, Path]:
        """Return the files by name, sorted.

        Raises:
            UsageError: two files have one name: none is preferred in silence.
        """
        named: dict[str, Path] = {}
        for folder, pattern in itertools.product(folders(), self.patterns):
            for path in folder.glob(pattern):
                if (name := self.name(path)) is None:
                    continue
                if (other := named.setdefault(name, path)) != path:
                    raise UsageError(
                        f"two definitions are called '{name}': {other} and {path}",
                        hint="give your own one another name",
                    )
        return dict(sorted(named.items()))

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return list(self.files())

    def file_of(self, name: str) -> Path:
        """Return the file of the one called `name`.

        Raises:
            UsageError: there is none; the nearest are named.
        """
        files = self.files()
        if name not in files:
            raise unknown_name(self.kind, name, list(files))
        return files[name]


def of_folder(path: Path) -> str:
    """Return the name of the folder that `path` lies in: of some `Definitions` the name."""
    return path.parent.name


def app(name: str) -> Path:
    """Return the folder of the app `name`, wherever it is; Trimaran's where it is nowhere."""
    places = [folder / "apps" / name for folder in folders()]
    return next((place for place in places if place.is_dir()), places[0])


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
    root = _cache()
    if root is None:
        raise UsageError(
            "no home folder is known, and so no place for the cache",
            hint="set HOME, or TRIMARAN_CACHE, to a folder by its absolute path",
        )
    return root.absolute().joinpath(*parts)


def has_cache() -> bool:
    """Return whether a place for the cache is known; else nothing is in it."""
    return _cache() is not None


def _cache() -> Path | None:
    named = os.environ.get("TRIMARAN_CACHE")
    return Path(named) if named else of_user("XDG_CACHE_HOME", ".cache")


def of_user(variable: str, below: str) -> Path | None:
    """Return the user's own folder `trimaran` of one kind; None: no home folder is known.

    Args:
        variable: of the XDG base directories, which counts if it is an absolute path.
        below: the folder below the home folder where the variable says nothing.
    """
    root = user_folder(variable, below)
    return root and root / "trimaran"


def user_folder(variable: str, below: str) -> Path | None:
    """Return an XDG base directory of the user; see `of_user`.

    Not platformdirs' way: without a home folder it returns `~`, or ends the program.
    """
    named = os.environ.get(variable, "")
    if Path(named).is_absolute():
        return Path(named)
    own = home()
    return own and own / below


def home() -> Path | None:
    """Return the home folder: $HOME if it is an absolute path, else that of the user database.

    None: neither knows one, as for a user of a directory service that is not asked here.
    """
    named = os.environ.get("HOME", "")
    if Path(named).is_absolute():
        return Path(named)
    try:
        found = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return None
    return found if found.is_absolute() else None
