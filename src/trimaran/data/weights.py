"""Published weights that a training begins with: one file, by its hash, from the first source.

`recipes/data/weights/NAME.yaml` says whose they are and where they come from. They lie in
`cache("data", NAME)`, as the files of a data set do.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from trimaran import locks, paths, strict
from trimaran.data.origins import Content, FileName, Licence, Name, Source, Url
from trimaran.errors import Interrupted, RunError, UsageError, unknown_name
from trimaran.files import make_folder, refusal
from trimaran.reporting import Reporter


class Weights(strict.Model):
    """The weights of one trained network: licence, origin and hash of their file."""

    schema_: Literal[1] = Field(alias="schema")
    name: Name
    title: str
    licence: Licence
    citation: str
    homepage: Url
    files: dict[FileName, Content] = Field(min_length=1, max_length=1)
    sources: list[Annotated[Source, Field(discriminator="kind")]] = Field(min_length=1)

    @model_validator(mode="after")
    def _given(self) -> Weights:
        for number, source in enumerate(self.sources):
            if source.gives != set(self.files):
                raise ValueError(f"sources.{number}: must give {', '.join(self.files)} alone")
        return self

    @property
    def getting(self) -> str:
        """The command that gets them."""
        return "trimaran run RECIPE"

    @property
    def content(self) -> Content:
        """The file's hash and size."""
        return next(iter(self.files.values()))


def file_of(name: str) -> Path:
    """Return the file that describes the weights called `name`.

    Raises:
        UsageError: there is none; the nearest are named.
    """
    files = paths.found("recipes/data/weights/*.yaml", name=lambda path: path.stem)
    if name not in files:
        raise unknown_name("weights", name, list(files))
    return files[name]


def load(name: str) -> Weights:
    """Load the description of the weights called `name`.

    Raises:
        UsageError: there is none, or it has faults.
    """
    path = file_of(name)
    found = strict.load(Weights, path)
    if found.name != name:
        raise UsageError(f"{path}: name: '{found.name}' must be '{name}', as the file is called")
    return found


def place(weights: Weights) -> Path:
    """Return where the file lies, whether or not it is there."""
    return paths.cache("data", weights.name, "raw", next(iter(weights.files)))


def get(weights: Weights, *, offline: bool, reporter: Reporter) -> Path:
    """Return the file, verified by its hash; it is downloaded where it is lacking or damaged.

    Raises:
        RunError: no source gives it, or there is no space.
        Interrupted: on Ctrl-C; the download resumes.
    """
    from trimaran.data.sources import fetch_raw  # slow to import (requests)

    path = place(weights)
    home = path.parents[1]
    try:
        if not weights.content.is_in(path):
            make_folder(home, reporter)
            with locks.making(path, reporter):
                fetch_raw(weights, path.parent, home / "download", offline=offline,
                          reporter=reporter)
            shutil.rmtree(home / "download", ignore_errors=True)
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped while getting {weights.name}", hint="run it again to go on"
        ) from None
    except OSError as error:
        raise RunError(
            f"cannot write into {home}: {refusal(error, home)}",
            hint="set TRIMARAN_CACHE to a folder with room where you may write",
        ) from error
    return path
