"""Checkpoints that survive kill -9, a full disk and a damaged file.

A checkpoint is one file `step-NNNNNNNN.npz` in the format of `statefile`. It is written under a
temporary name and then renamed, so that a file with this name is always complete. Reading verifies
the checksums of all entries, which detects truncation and flipped bits.

Arrays that are distributed over the ranks are stored in pieces (module `pieces`). Each rank first
writes the pieces that it owns to a file in the folder `step-NNNNNNNN`. Then rank 0 writes
`step-NNNNNNNN.npz`, which lists these files with their sizes and checksums. The checkpoint is valid
as soon as this file exists; a folder without this file is not a checkpoint.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from trainkit import atomic, pieces, statefile
from trainkit.exits import DataError, NoSpaceError
from trainkit.pieces import File, Piece
from trainkit.statefile import FormError
from trainkit.strategy import Strategy

T = TypeVar("T")
State = dict[str, Any]
"""Nested dicts, lists and tuples of arrays, numbers and strings: see `statefile`."""

NAME = re.compile(r"step-(\d{8,})\.npz")
FOLDER = re.compile(r"step-\d{8,}")
OLD = re.compile(r"step-\d{8,}\.pt")
MARGIN = 1 << 20  # space in bytes for names, zip directory and small values
PIECES = "files"  # entry of the state that lists the files of pieces


class Checkpoints:
    """The checkpoints of one run, all in one folder.

    Args:
        folder: folder of the checkpoints; the first checkpoint creates it.
        keep: number of checkpoints to keep; if the newest checkpoint is damaged, the next older
            checkpoint is loaded.
        strategy: the strategy that connects the ranks; needed if arrays of the state are divided
            over the ranks.
    """

    def __init__(self, folder: Path, keep: int = 2, strategy: Strategy | None = None) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.folder = folder
        self.keep = keep
        self._strategy = strategy or Strategy()
        self._gather: Callable[[Any], list[Any]] | None = None
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
        return self._write(self._ready(step, statefile.nbytes(state)), state)

    def _ready(self, step: int, size: int) -> Path:
        """Return the path of a new checkpoint of `size` bytes; check the free space for it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step:08d}.npz"
        self._check_space(path, size + MARGIN)
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
            _remove(_folder(old))
        return path

    def _write_pieces(self, path: Path, state: State, own: Mapping[str, Piece]) -> Path:
        """Write this rank's pieces of distributed arrays; on rank 0, then write the checkpoint.

        All ranks return or fail together, so that no rank begins the next checkpoint early.
        """
        folder = _folder(path)

        def write_own() -> File:
            if folder.is_symlink():
                raise OSError("it is a link")
            folder.mkdir(exist_ok=True)
            return pieces.write(folder / f"rank-{self._strategy.rank:05d}.safetensors", own)

        files = self._together(folder, write_own)

        def complete() -> None:
            if self._strategy.is_main:
                self._clean(path, {file["name"] for file in files})
                atomic.sync_folder(self.folder)
                self._write(path, {**state, PIECES: files})

        self._together(path, complete)
        return path

    def _together(self, path: Path, write: Callable[[], T]) -> list[T]:
        """Call `write` on each rank; return the results in the order of the ranks.

        Raises:
            NoSpaceError: `write` failed on a rank; the message names `path`.
        """
        assert self._gather is not None  # noqa: S101 - `start` sets it
        result, failure = None, None
        try:
            result = write()
        except OSError as error:
            failure = self._failure(path, _first(error))
        except NoSpaceError as error:
            failure = str(error)
        found = self._gather((result, failure))
        for _, reason in found:
            if reason:
                raise NoSpaceError(reason, code="file-unwritable")
        return [result for result, _ in found]

    def _clean(self, path: Path, names: set[str]) -> None:
        """Remove piece files that killed processes left behind and that no checkpoint lists.

        `path` is the new checkpoint, and `names` are the files that the new checkpoint lists.
        """
        for file in _folder(path).iterdir():
            if file.name not in names:
                file.unlink()
        valid = {_folder(file) for file in (*self.files(), path)}
        for folder in self.folder.iterdir():
            if FOLDER.fullmatch(folder.name) and folder.is_dir() and folder not in valid:
                _remove(folder)

    def start(self, step: int, state: State, own: Mapping[str, Piece] | None = None) -> None:
        """Copy `state`, and write the copy as the checkpoint of `step` in the background.

        Args:
            step: number of updates so far.
            state: the state of the training on this rank; only rank 0 writes it.
            own: name -> piece that this rank holds, for a state with arrays that are distributed
                over the ranks. For such a state, all ranks must call this method, otherwise only
                rank 0.

        Raises:
            NoSpaceError: this checkpoint or the previous one does not fit on the disk.
        """
        self.wait()
        if not own:
            path = self._ready(step, statefile.nbytes(state))
            self._writing = self._writer.submit(self._write, path, statefile.copied(state))
            return
        if self._gather is None:
            self._gather = self._strategy.side_channel()
        path = self._ready(step, statefile.nbytes(state) + pieces.nbytes(own))
        self._writing = self._writer.submit(
            self._write_pieces, path, statefile.copied(state), pieces.owned(own)
        )

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

        For each file that is damaged or that `fits` refuses, the function calls `warn` and tries
        the next older file. If a file is usable, the refused files are renamed to `*.corrupt`, so
        that they no longer count as checkpoints and are not deleted.

        Args:
            warn: function that reports a refused checkpoint.
            fits: function that raises DataError for a state that cannot be used.
            set_aside: whether to rename refused files; False for commands that only read.

        Raises:
            DataError: there are checkpoints, but none can be used; all keep their names. The error
                has the error code of the newest file.
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
                _set_aside(other, ".corrupt")
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
                aside = _set_aside(path, ".abandoned")
                warn(f"{path.name} is newer than the checkpoint to resume from: now {aside.name}")

    def _refuse_old(self) -> None:
        """Raise DataError if the folder has checkpoints in the format of an older version."""
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
        state = statefile.read(path)
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
    if PIECES in state:
        _insert_pieces(path, state)
    return state


def _insert_pieces(path: Path, state: State) -> None:
    """Verify the piece files of the checkpoint `path`, and add their arrays to `state`."""
    try:
        arrays = pieces.stored(_folder(path), state[PIECES])
        for name, array in arrays.items():
            part, _, key = name.partition("/")
            state["parts"][part][key] = array
    except (FormError, LookupError, TypeError) as error:
        raise DataError(
            f"checkpoint {path} is incomplete or damaged ({_first(error)})",
            code="checkpoint-damaged",
        ) from error


def _folder(path: Path) -> Path:
    """Return the folder with the pieces of distributed arrays of the checkpoint `path`."""
    return path.with_name(path.name.replace(".npz", ""))


def _set_aside(path: Path, ending: str) -> Path:
    """Add `ending` to the names of a checkpoint and its folder of pieces; return the new path."""
    folder, aside = _folder(path), path.with_name(path.name + ending)
    if folder.is_dir():
        _remove(_folder(aside))
        folder.rename(_folder(aside))
    return path.rename(aside)


def _remove(folder: Path) -> None:
    """Remove `folder`, which contains the pieces of a checkpoint, if the folder exists."""
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder)


def _old(path: Path) -> str:
    return (
        f"checkpoint {path} was made by an older version of the app; use the image that "
        "made it, or begin in another --out"
    )


def step_of(path: Path) -> int:
    """Return the step in the file name of a checkpoint."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(
            f"{path.name} is not the name of a checkpoint, such as step-00000750.npz"
        )
    return int(match.group(1))


def _first(error: Exception) -> str:
    """Return the first line of the message of `error`, or its class name if it has no message."""
    return str(error).partition("\n")[0] or type(error).__name__
