"""Checkpoints that survive kill -9, a full disk and a damaged file.

A checkpoint is one file `step-NNNNNNNN.pt`, written beside and renamed, so it is
complete whenever it has its name. `torch.save` makes a zip with a CRC-32 of every
entry; reading verifies them all, which finds truncation and flipped bits.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trainkit import atomic
from trainkit.exits import DataError, NoSpaceError

State = dict[str, Any]
"""Tensors, numbers, strings, lists and dicts only: files are read with `weights_only=True`."""

NAME = re.compile(r"step-(\d{8,})\.pt")
MARGIN = 1 << 20  # bytes besides the tensors: names, zip directory, small values


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
        path = self.folder / f"step-{step:08d}.pt"
        self._check_space(path, _bytes(state) + MARGIN)
        return path

    def _write(self, path: Path, state: State) -> Path:
        import torch

        for leftover in self.folder.glob(f".*{atomic.TEMPORARY}"):  # of a killed process
            leftover.unlink()
        try:
            with atomic.replacing(path) as file:
                torch.save(state, file)
        except (OSError, RuntimeError) as error:  # torch wraps the OSError of a full disk
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
        self._writing = self._writer.submit(self._write, path, _copy(state))

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
    """Return the state in `path` (tensors on the CPU) after verifying every byte of it.

    Raises:
        DataError: the file is missing, truncated, damaged, or not a checkpoint. Nothing in it
            is executed.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise DataError(f"checkpoint {path} is damaged (checksum of {damaged})")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"checkpoint {path} does not exist") from error
    except pickle.UnpicklingError as error:  # PyTorch's text proposes to load it all the same
        raise DataError(
            f"checkpoint {path} is not of this app: it has objects that are no tensors, numbers "
            "or texts, and loading them could run foreign code"
        ) from error
    except Exception as error:  # damage makes zipfile and the unpickler raise anything
        raise DataError(f"checkpoint {path} is truncated or damaged ({_first(error)})") from error
    if not isinstance(state, dict):
        raise DataError(f"checkpoint {path} is not of this app: it has no names")
    return state


def step_of(path: Path) -> int:
    """Return the step in a checkpoint's file name."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise ValueError(f"{path.name} is not the name of a checkpoint")
    return int(match.group(1))


def _first(error: Exception) -> str:
    """Return the first line of what an error says; PyTorch's say much."""
    return str(error).partition("\n")[0] or type(error).__name__


def _copy(value: Any) -> Any:
    """Return `value` with its tensors copied to the CPU, nested as it is."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    return value


def _bytes(value: Any) -> int:
    """Return the bytes of all tensors inside nested dicts and lists."""
    if isinstance(value, Mapping):
        return sum(_bytes(item) for item in value.values())
    if isinstance(value, list | tuple):
        return sum(_bytes(item) for item in value)
    with contextlib.suppress(AttributeError):
        return int(value.nbytes)
    return 0
