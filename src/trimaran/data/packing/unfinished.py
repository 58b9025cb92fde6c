"""Manage the folder `.packing` of an unfinished packing, from which the same command resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shards.description import DATASET
from trimaran import files
from trimaran.errors import UsageError

STATE = ".packing"
PLAN = "plan.json"


def is_under_way(folder: Path) -> bool:
    """Return True if `folder` contains an unfinished packing; the same command resumes it."""
    return (folder / STATE).is_dir() and not (folder / DATASET).exists()


def refuse_used(folder: Path) -> None:
    """Check that `folder` is new or empty, or contains an unfinished packing.

    Raises:
        UsageError: `folder` contains a packed data set or other files, or is a file.
    """
    if (folder / DATASET).exists():
        raise UsageError(f"{folder} already contains a packed data set", code="file-exists",
                         hint="choose another folder")
    if not folder.exists() or (folder / STATE).is_dir():
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise UsageError(f"{folder} exists and is not empty", code="file-exists",
                         hint="choose another folder")


@contextmanager
def notes(folder: Path, plan: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the folder with the notes of an unfinished packing.

    The output folder is locked during the `with` block. Notes of an earlier, interrupted packing
    are used only if it had the same source and options.

    Args:
        folder: a new or empty folder, or the folder of an unfinished packing.
        plan: the source and all options of the packing, as JSON data.

    Raises:
        UsageError: `folder` contains other files, or a packing of another source or with other
            options; or another process is packing into it.
    """
    refuse_used(folder)
    state = folder / STATE
    state.mkdir(parents=True, exist_ok=True)
    with files.locked(state / "lock", f"another process is packing into {folder}"):
        path, text = state / PLAN, json.dumps(plan, indent=2) + "\n"
        if not path.exists():
            files.write_atomic(path, text)
        elif path.read_text(encoding="utf-8") != text:
            raise UsageError(
                f"{folder} contains an unfinished packing of other files or with other options",
                code="packing-conflict", hint="remove the folder, or choose another folder",
            )
        yield state
