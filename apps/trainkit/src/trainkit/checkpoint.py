"""Checkpoints that survive kill -9, a full disk and a damaged file.

A checkpoint is one file `step-NNNNNNNN.npz` in the form of `statefile`, written beside and
renamed, so it is complete whenever it has its name. Reading verifies the checksums of all its
entries, which finds truncation and flipped bits.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainkit import atomic, statefile
from trainkit.exits import DataError, NoSpaceError
from trainkit.statefile import FormError

State = dict[str, Any]
"""Nested dicts, lists and tuples of arrays, numbers and texts: `statefile`."""

NAME = re.compile(r"step-(\d{8,})\.npz")
OLD = re.compile(r"step-\d{8,}\.pt")
MARGIN = 1 << 20  # bytes besides the arrays: names, zip directory, small values


class Checkpoints:
    """The checkpoints of one run in one folder, newest last.

    Args:
        folder: made at the first `save`.
        keep: how many to keep; the previous one is the fallback for a damaged one.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.folder = folder
        self.keep = keep
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[Path] | None = None

    def files(self) -> list[Path]:
        """Return the checkpoint files, oldest first."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.iterdir() if NAME.fullmatch(path.name)]
        return sorted(found, key=step_of)

    def save(self, step: int, state: State) -> Path:
        """Write `state` as the checkpoint of `step` and drop those beyond `keep`.

        Raises:
            NoSpaceError: the disk is full; earlier checkpoints are intact and no part is left.
        """
        return self._write(self._ready(step, state), state)

    def _ready(self, step: int, state: State) -> Path:
        """Return the path of a new checkpoint, for which there is a folder and space."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step:08d}.npz"
        self._check_space(path, statefile.nbytes(state) + MARGIN)
        return path

    def _write(self, path: Path, state: State) -> Path:
        for leftover in self.folder.glob(f".*{atomic.TEMPORARY}"):  # of a killed process
            leftover.unlink()
        try:
            with atomic.replacing(path) as file:
                statefile.write(state, file)
        except OSError as error:
            raise NoSpaceError(self._failure(path, _first(error))) from error
        for old in self.files()[: -self.keep]:
            old.unlink()
        return path

    def start(self, step: int, state: State) -> None:
        """Copy `state` and write the copy as the checkpoint of `step` in the background.

        Raises:
            NoSpaceError: the checkpoint before this one, or this one, does not fit.
        """
        self.wait()
        path = self._ready(step, state)
        self._writing = self._writer.submit(self._write, path, statefile.copied(state))

    def wait(self) -> None:
        """Return when no checkpoint is being written any more.

        Raises:
            NoSpaceError: it could not be written.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def load_newest(
        self,
        warn: Callable[[str], None],
        fits: Callable[[Path, State], None] = lambda path, state: None,
        *,
        set_aside: bool = True,
    ) -> State | None:
        """Return the newest usable state, or None where there is no checkpoint at all.

        A file that is damaged or does not fit is told to `warn`, and the one before it is
        tried. Where that helps, it is set aside as `*.corrupt`, so that it is neither
        deleted nor counted.

        Args:
            warn: is told.
            fits: raises DataError for a state that cannot be used.
            set_aside: False for who only reads.

        Raises:
            DataError: there are checkpoints, and none can be used; all stay where they are.
        """
        self._refuse_old()
        refused: dict[Path, DataError] = {}
        for path in reversed(self.files()):
            try:
                state = load(path)
                fits(path, state)
            except DataError as error:
                warn(f"{error}; trying the checkpoint before it")
                refused[path] = error
                continue
            for other in refused if set_aside else ():
                other.rename(other.with_name(other.name + ".corrupt"))
            return state
        if not refused:
            return None
        newest = next(iter(refused.values()))
        raise DataError(
            f"{self.folder}: none of its {len(refused)} checkpoints can be used; of the newest, "
            f"{newest}"
        )

    def abandon(self, step: int, warn: Callable[[str], None]) -> None:
        """Set the checkpoints after `step` aside as `*.abandoned`: the training goes on before.

        Else the next resumption would take them for the newest.
        """
        for path in self.files():
            if step_of(path) > step:
                aside = path.with_name(path.name + ".abandoned")
                warn(f"{path.name} is newer than the checkpoint to go on from: now {aside.name}")
                path.rename(aside)

    def _refuse_old(self) -> None:
        """Refuse to begin anew where an older version has trained."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if OLD.fullmatch(path.name):
                raise DataError(_old(path))

    def _check_space(self, path: Path, needed: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise NoSpaceError(
                self._failure(path, f"it needs {needed / 1e6:.1f} MB and {free / 1e6:.1f} are free")
            )

    def _failure(self, path: Path, reason: str) -> str:
        last = self.files()
        kept = f"{last[-1].name} is intact" if last else "there is no earlier checkpoint"
        return (
            f"cannot write checkpoint {path}: {reason}; {kept}. "
            "Free some space and continue with --resume auto"
        )


def load(path: Path) -> State:
    """Return the state in `path` after verifying every byte of it.

    Raises:
        DataError: the file is missing, truncated, damaged, or not a checkpoint. Nothing in it
            is executed.
    """
    if OLD.fullmatch(path.name):
        raise DataError(_old(path))
    try:
        return statefile.read(path)
    except FileNotFoundError as error:
        raise DataError(f"checkpoint {path} does not exist") from error
    except FormError as error:
        raise DataError(f"checkpoint {path} is not of this app: {error}") from error
    except Exception as error:  # damage makes zipfile, json and NumPy raise anything
        raise DataError(f"checkpoint {path} is truncated or damaged ({_first(error)})") from error


def _old(path: Path) -> str:
    return (
        f"checkpoint {path} was made by an older version of the app; use the image that "
        "made it, or begin in another --out"
    )


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's file name."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not the name of a checkpoint")
    return int(match.group(1))


def _first(error: Exception) -> str:
    """Return the first line of what an error says."""
    return str(error).partition("\n")[0] or type(error).__name__
