"""Download published weights from which a training starts: one file, verified by its hash.

`recipes/data/weights/NAME.yaml` contains their licence and sources. The file is stored in
`cache("data", NAME)`, like the files of a data set.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from pydantic import Field, model_validator

from trimaran import locks, paths
from trimaran.data import contracts
from trimaran.data.contracts import Content, FileName, Obtainable
from trimaran.files import IN_CACHE, make_folder, resumable, writing
from trimaran.reporting import Reporter


class Weights(Obtainable):
    """The weights of one trained network: licence, origin and hash of their file."""

    files: dict[FileName, Content] = Field(min_length=1, max_length=1)

    @model_validator(mode="after")
    def _given(self) -> Weights:
        for number, source in enumerate(self.sources):
            if source.gives != set(self.files):
                raise ValueError(f"sources.{number}: must provide only {', '.join(self.files)}")
        return self

    @property
    def getting(self) -> str:
        """The command that downloads the file; RECIPE stands for any recipe with these weights."""
        return "trimaran run RECIPE"

    @property
    def content(self) -> Content:
        """The SHA-256 and size in bytes of the file."""
        return next(iter(self.files.values()))


file_of = paths.Definitions("weights", ("recipes/data/weights/*.yaml",)).file_of


def load(name: str) -> Weights:
    """Load the description of the weights called `name`.

    Raises:
        UsageError: no weights have this name, or the description is invalid.
    """
    return contracts.load_file(lambda content: Weights, file_of(name))


def place(weights: Weights) -> Path:
    """Return the path of the weights in the cache; the file need not exist."""
    return paths.cache("data", weights.name, "raw", next(iter(weights.files)))


def get(weights: Weights, *, offline: bool, reporter: Reporter) -> Path:
    """Download the file if needed, verify its hash, and return its path.

    Raises:
        RunError: no source provides the file, or the disk has too little free space.
        Interrupted: the user pressed Ctrl-C; the next call resumes the download.
    """
    from trimaran.data.sources import fetch_raw  # slow to import (requests)

    path = place(weights)
    home = path.parents[1]
    with resumable(f"getting {weights.name}"), writing(f"write into {home}", home, hint=IN_CACHE):
        if not weights.content.is_in(path):
            make_folder(home, reporter)
            with locks.making(path, reporter):
                fetch_raw(weights, path.parent, home / "download", offline=offline,
                          reporter=reporter)
            shutil.rmtree(home / "download", ignore_errors=True)
    return path
