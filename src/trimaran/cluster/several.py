"""Folders that contain several submitted runs: runs that share one job, or a chain of runs.

In a chain, each run starts from the last checkpoint of the previous run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from trimaran.errors import UsageError
from trimaran.files import read_plain, write_atomic
from trimaran.run import job_chain, run_directory
from trimaran.run.record import RunRecord
from trimaran.run.request import Request
from trimaran.site_file import Cluster
from trimaran.strict import Sha256

Kind = Literal["together", "chain"]

TOGETHER: Kind = "together"
"""Kind of a folder whose runs share one job. Its list of runs is `together.json`."""

CHAIN: Kind = "chain"
"""Kind of a folder in which each run starts from the last checkpoint of the previous run.

The folder's list of runs is `chain.json`.
"""

SEED = "seed"
"""Name of the app's option that `--seeds` sets."""


class Runs(BaseModel):
    """The list of runs in a folder, and the script of their job if they share one.

    Attributes:
        runs: names of the run directories, in their order.
        script_sha256: hash of the script of the shared job.
        functions_sha256: hash of `functions.sh`, the shell functions that the script calls.
    """

    runs: list[str] = Field(min_length=1)
    script_sha256: Sha256 | None = None
    functions_sha256: Sha256 | None = None


def folder(requests: Sequence[Request], kind: Kind, cluster: Cluster) -> Path:
    """Return the path for a new folder of runs, without creating it.

    Raises:
        UsageError: the requested folder contains files.
    """
    if (out := requests[0].out) is not None:
        run_directory.refuse_used(out)
        return out.absolute()
    return run_directory.new_directory(requests[0].recipe, None, cluster.scratch, name=kind)


def places(folder: Path, requests: Sequence[Request]) -> list[Path]:
    """Return the run directory of each request, below `folder`."""
    names = [request.recipe.name.rpartition("/")[2] for request in requests]
    repeated = {name for name, count in Counter(names).items() if count > 1}
    seeds = [
        f"-{SEED}{request.changes[SEED]}" if name in repeated and SEED in request.changes else ""
        for name, request in zip(names, requests, strict=True)
    ]
    return [
        folder / f"{number}-{name}{seed}"
        for number, (name, seed) in enumerate(zip(names, seeds, strict=True), 1)
    ]


@contextmanager
def claimed(requests: Sequence[Request]) -> Iterator[list[int]]:
    """Create and lock the run directories of the requests; yield the descriptors of their locks.

    Directories in which no run was started are deleted afterwards, with their folder.

    Raises:
        UsageError, RunError: as in `run_directory.claim`.
    """
    try:
        with ExitStack() as stack:
            yield [
                stack.enter_context(run_directory.claim(request.recipe, request.out))[1]
                for request in requests
            ]
    finally:
        for request in requests:
            if request.out is not None:
                with suppress(OSError):  # it is not empty
                    request.out.parent.rmdir()


def write(folder: Path, kind: Kind, runs: Runs) -> None:
    """Write the list of the runs in a folder."""
    write_atomic(folder / f"{kind}.json", runs.model_dump_json(indent=2, exclude_none=True) + "\n")


def folders(folder: Path) -> list[Path]:
    """Return the run directories that a folder lists; [] if it is not a folder of several runs.

    Raises:
        UsageError: the list is damaged, or names a folder in another place.
    """
    for kind in (TOGETHER, CHAIN):
        path = folder / f"{kind}.json"
        try:
            runs = Runs.model_validate_json(read_plain(path)).runs
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ValidationError as error:
            raise _damaged(path, error.errors()[0]["msg"]) from error
        for name in runs:
            if "/" in name or name in ("", ".", ".."):
                raise _damaged(path, f"'{name}' is not a folder beside it")
        return [folder / name for name in runs]
    return []


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is damaged: {why}", code="file-invalid",
                      hint="name the run directories in its folder instead")


def shares_job(folder: Path) -> bool:
    """Return whether the runs in `folder` share one job."""
    return (folder / f"{TOGETHER}.json").is_file()


def sharing(directory: Path, record: RunRecord, job: str) -> list[Path]:
    """Return `directory`; for a shared job, return the job's folder and all its run directories.

    If the folder of a shared job was moved away or is damaged, only `directory` is returned.
    """
    shared = directory.parent
    if record.job is None or record.job.together is None:
        return [directory]
    try:
        if job in job_chain.numbers(shared) and directory in (runs := folders(shared)):
            return [shared, *(run for run in runs if run.is_dir())]
    except (UsageError, OSError):
        pass
    return [directory]
