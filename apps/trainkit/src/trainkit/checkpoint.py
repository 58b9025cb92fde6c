"""Checkpoints that survive kill -9, a full disk and a damaged file.

A checkpoint is one file `step-NNNNNNNN.npz` in the format of `statefile`. It is written under a
temporary name and then renamed, so that a file of this name is always complete. Reading verifies
the checksums of all entries, which detects truncation and flipped bits.
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
"""Nested dicts, lists and tuples of arrays, numbers and strings: see `statefile`."""

NAME = re.compile(r"step-(\d{8,})\.npz")
OLD = re.compile(r"step-\d{8,}\.pt")
MARGIN = 1 << 20  # space in bytes for names, zip directory and small values


class Checkpoints:
    """The checkpoints of one run, all in one folder.

    Args:
        folder: folder of the checkpoints; the first `save` creates it.
        keep: number of checkpoints to keep; if the newest is damaged, the next older one is loaded.
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
        """Write `state` as the checkpoint of `step`, and delete the checkpoints beyond `keep`.

        Raises:
            NoSpaceError: the disk is full; earlier checkpoints are intact, and no partial file
                is left.
        """
        return self._write(self._ready(step, state), state)

    def _ready(self, step: int, state: State) -> Path:
        """Return the path of a new checkpoint; create its folder and check the free space."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step:08d}.npz"
        self._check_space(path, statefile.nbytes(state) + MARGIN)
        return path

    def _write(self, path: Path, state: State) -> Path:
        for leftover in self.folder.glob(f".*{atomic.TEMPORARY}"):  # left by a killed process
            leftover.unlink()
        try:
            with atomic.replacing(path) as file:
                statefile.write(state, file)
        except OSError as error:
            raise NoSpaceError(
                self._failure(path, _first(error)), code="file-unwritable"
            ) from error
        for old in self.files()[: -self.keep]:
            old.unlink()
        return path

    def start(self, step: int, state: State) -> None:
        """Copy `state`, and write the copy as the checkpoint of `step` in the background.

        Raises:
            NoSpaceError: this checkpoint or the previous one does not fit on the disk.
        """
        self.wait()
        path = self._ready(step, state)
        self._writing = self._writer.submit(self._write, path, statefile.copied(state))

    def wait(self) -> None:
        """Wait until no checkpoint is being written.

        Raises:
            NoSpaceError: the checkpoint could not be written.
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
        """Return the newest usable state, or None if there is no checkpoint at all.

        For each file that is damaged or does not fit, the function calls `warn` and tries the next
        older file. If a file is usable, the refused files are renamed to `*.corrupt`, so that they
        no longer count as checkpoints and are not deleted.

        Args:
            warn: function that reports a refused checkpoint.
            fits: function that raises DataError for a state that cannot be used.
            set_aside: whether to rename refused files; False for commands that only read.

        Raises:
            DataError: there are checkpoints, but none can be used; all keep their names. The error
                has the code of the error in the newest file.
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
            f"{newest}",
            code=newest.code,
        )

    def abandon(self, step: int, warn: Callable[[str], None]) -> None:
        """Rename the checkpoints after `step` to `*.abandoned`; the training resumes from `step`.

        Otherwise the next resume would use them as the newest checkpoints.
        """
        for path in self.files():
            if step_of(path) > step:
                aside = path.with_name(path.name + ".abandoned")
                warn(f"{path.name} is newer than the checkpoint to resume from: now {aside.name}")
                path.rename(aside)

    def _refuse_old(self) -> None:
        """Refuse a folder with checkpoints of an older version."""
        for path in self.folder.iterdir() if self.folder.is_dir() else ():
            if OLD.fullmatch(path.name):
                raise DataError(_old(path), code="checkpoint-outdated")

    def _check_space(self, path: Path, needed: int) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < needed:
            raise NoSpaceError(
                self._failure(
                    path, f"it needs {needed / 1e6:.1f} MB and {free / 1e6:.1f} are free"
                ),
                code="disk-full",
            )

    def _failure(self, path: Path, reason: str) -> str:
        last = self.files()
        kept = f"{last[-1].name} is intact" if last else "there is no earlier checkpoint"
        return (
            f"cannot write checkpoint {path}: {reason}; {kept}. "
            "Free some space and continue with --resume auto"
        )


def load(path: Path) -> State:
    """Return the state in `path` after verification of every byte; nothing in the file is executed.

    Raises:
        DataError: the file is missing, truncated, damaged, or not a checkpoint.
    """
    if OLD.fullmatch(path.name):
        raise DataError(_old(path), code="checkpoint-outdated")
    try:
        return statefile.read(path)
    except FileNotFoundError as error:
        raise DataError(f"checkpoint {path} does not exist", code="checkpoint-missing") from error
    except FormError as error:
        raise DataError(
            f"checkpoint {path} is not of this app: {error}", code="checkpoint-mismatch"
        ) from error
    except Exception as error:  # damaged files make zipfile, json and NumPy raise any exception
        raise DataError(
            f"checkpoint {path} is truncated or damaged ({_first(error)})",
            code="checkpoint-damaged",
        ) from error


def _old(path: Path) -> str:
    return (
        f"checkpoint {path} was made by an older version of the app; use the image that "
        "made it, or begin in another --out"
    )


def step_of(path: Path) -> int:
    """Return the step in the file name of a checkpoint."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not the name of a checkpoint")
    return int(match.group(1))


def _first(error: Exception) -> str:
    """Return the first line of the message of an error."""
    return str(error).partition("\n")[0] or type(error).__name__
