"""Check the user's additions to an image: an overlay, and packages of a virtual environment."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from trimaran.engines import Engine, selection
from trimaran.errors import UsageError, unreadable
from trimaran.files import sha256
from trimaran.launch.specification import Mount

if TYPE_CHECKING:
    from trimaran.images.definition import Image

VENV_INSIDE = "/venv"
"""Path in the container at which the user's `site-packages` folder is mounted."""

PAGE = "see containers/EXTENDING.md"


class Modification(BaseModel):
    """An addition to an image; `sha256` is the hash of a file, or the `tree_sha256` of a folder."""

    kind: Literal["overlay", "venv"]
    path: str
    sha256: str


@dataclass(frozen=True)
class Extension:
    """The additions to an image for one run, as absolute paths.

    Attributes:
        overlay: folder with a subfolder `upper`, or a file system image, to mount over the image.
        packages: `site-packages` of a virtual environment for the Python of the image.
    """

    overlay: Path | None = None
    packages: Path | None = None

    def modifications(self) -> list[Modification]:
        """Return the overlay and the virtual environment, each with its hash, for `run.json`."""
        found = []
        if self.overlay is not None:
            layer = self.overlay / "upper" if self.overlay.is_dir() else self.overlay
            found.append(_modification("overlay", self.overlay, layer))
        if self.packages is not None:
            found.append(_modification("venv", self.packages, self.packages))
        return found

    def mounts(self) -> list[Mount]:
        """Return the mount of the user's `site-packages` folder in the container, if any."""
        return [Mount(str(self.packages), VENV_INSIDE)] if self.packages else []

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return `env` with the user's packages, if there are any, at the front of PYTHONPATH."""
        if self.packages is None:
            return dict(env)
        path = [VENV_INSIDE, *filter(None, [env.get("PYTHONPATH")])]
        return {**env, "PYTHONPATH": os.pathsep.join(path)}


def extension(
    image: Image, engine: Engine, *, overlay: Path | None, venv: Path | None
) -> Extension:
    """Check the values of `--overlay` and `--venv`, and return them as an extension.

    Raises:
        UsageError: the engine does not support an option, or the path is not an overlay or
            virtual environment.
    """
    if overlay is not None:
        if not engine.mounts_images:
            able = " or ".join(n for n, found in selection.every().items() if found.mounts_images)
            raise UsageError(f"--overlay needs {able}, but the engine is {engine.name}",
                             code="engine-unsuitable", hint=PAGE)
        overlay = _overlay(overlay.absolute())
    if venv is not None and not engine.container:
        raise UsageError(f"--venv needs a container, but the engine is {engine.name}",
                         code="engine-unsuitable", hint=PAGE)
    return Extension(overlay, _packages(image, venv.absolute()) if venv else None)


def tree_sha256(folder: Path) -> str:
    """Return a hash of the names, types, modes, contents and link targets of all files in `folder`.

    Raises:
        UsageError: a file or folder in `folder` cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for path in sorted(folder.rglob("*")):
            mode = path.lstat().st_mode
            content = ""
            if stat.S_ISREG(mode):
                content = sha256(path)
            elif stat.S_ISLNK(mode):
                content = os.readlink(path)  # noqa: PTH115 - readlink() of pathlib tidies the text
            entry = (os.fspath(path.relative_to(folder)), f"{mode:o}", content)
            digest.update(repr(entry).encode())
    except OSError as error:
        raise unreadable(error.filename, error) from error
    return digest.hexdigest()


def _modification(kind: Literal["overlay", "venv"], named: Path, content: Path) -> Modification:
    hashed = tree_sha256(content) if content.is_dir() else sha256(content)
    return Modification(kind=kind, path=str(named), sha256=hashed)


def _overlay(path: Path) -> Path:
    if not path.exists():
        raise UsageError(f"--overlay {path}: no such file", code="file-missing", hint=PAGE)
    if path.is_dir() and not (path / "upper").is_dir():
        raise UsageError(f"--overlay {path}: the folder has no subfolder 'upper'",
                         code="argument-invalid", hint=PAGE)
    if {",", ":"} & set(str(path)):
        raise UsageError(f"--overlay {path}: Apptainer allows no ',' and no ':' in the path",
                         code="argument-invalid", hint="rename the overlay")
    return path


def _packages(image: Image, venv: Path) -> Path:
    from trimaran.images import definition  # not needed to read what was added

    python = definition.interpreter(image)
    packages = venv / "lib" / f"python{python.version}" / "site-packages"
    if not packages.is_dir():
        others = sorted(path.parent.name for path in venv.glob("lib/python*/site-packages"))
        found = f"it is for {', '.join(others)}" if others else "it is not a virtual environment"
        raise UsageError(
            f"--venv {venv}: {image.name} needs Python {python.version}; {found}",
            code="argument-invalid", hint=PAGE,
        )
    return packages
