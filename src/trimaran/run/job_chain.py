"""Read the links of a job chain: the records of each start of a run by a batch system.

Trimaran is not installed on the nodes, so that a job cannot update `run.json`. The job script
writes small files into `job/` instead, and `fold` combines `run.json` with these files.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from trimaran.errors import UsageError
from trimaran.files import read_plain, read_text
from trimaran.hostfacts import HostFacts
from trimaran.run.record import JobRecord, ResumptionRecord, RunRecord, status_after
from trimaran.strict import Sha256
from trimaran.terminal_safety import excerpt

FOLDER = "job"
"""Folder in a run directory with the files of the batch system."""

SCRIPT = f"{FOLDER}/job.sh"

FUNCTIONS = f"{FOLDER}/functions.sh"
"""File with the shell functions that `job.sh` calls.

Older versions of Trimaran wrote no such file; their `job.sh` contains the functions itself.
"""

QUEUED, CANCELLED = "ids", "cancelled"
"""Files in `FOLDER` with job numbers: of all submitted jobs, and of the cancelled jobs.

The numbers are stored because batch systems do not list old jobs.
"""

ExitStatus = Annotated[int, Field(strict=True, ge=0, le=255)]
Step = Annotated[int, Field(strict=True, ge=0, le=10**12)]


def submitted_files(job: JobRecord) -> dict[str, str]:
    """Return the SHA-256 of each file that a job reads, by its path in the run directory."""
    functions = {} if job.functions_sha256 is None else {FUNCTIONS: job.functions_sha256}
    return {SCRIPT: job.script_sha256, **functions}


class End(BaseModel):
    """How a run ended after one of its starts by a batch system.

    `step` is the training step of the newest checkpoint at that time; 0 means no checkpoint.
    """

    ended: AwareDatetime
    exit_status: ExitStatus
    step: Step
    reason: str
    files: dict[str, str]


class Refusal(BaseModel):
    """The reason why the newest job of a run ended before it started any rank."""

    job: str
    exit_status: ExitStatus
    reason: str


class Link(BaseModel):
    """One start of the run by a job; `hosts` lists all nodes, beginning with the node of rank 0."""

    number: Annotated[int, Field(strict=True, ge=1)]
    job: str
    started: AwareDatetime
    step: Step = Field(description="of the newest checkpoint; 0: none")
    hosts: list[HostFacts] = Field(min_length=1)
    initial: Sha256 | None = Field(
        default=None, description="hash of the initial checkpoint, which another run has written"
    )
    end: End | None = None


def place(directory: Path) -> Path:
    """Return the folder of the batch system's files in a run directory.

    Raises:
        UsageError: the folder is a symbolic link, which could lead to other files.
    """
    folder = directory / FOLDER
    if folder.is_symlink():
        raise UsageError(f"{folder} is a symbolic link, which is not followed", code="path-outside",
                         hint="replace the link by the folder itself")
    return folder


_NUMBER = re.compile(r"\d[\w.@\[\]-]*", re.ASCII)
"""Matches a job number, with or without the server's name; a text such as `-rf` does not match."""


def numbers(directory: Path, file: str = QUEUED) -> list[str]:
    """Return the job numbers of a run, the newest last.

    Older versions of Trimaran stored the whole output of the command that submits a job, for
    example with a message of the site. Lines without a job number are left out.

    Args:
        directory: the run directory.
        file: QUEUED or CANCELLED.

    Raises:
        UsageError: the file is not a plain text file, or contains no job number.
    """
    path = place(directory) / file
    try:
        lines = [line for line in map(str.strip, read_text(path).splitlines()) if line]
    except FileNotFoundError:
        return []
    # Job scripts of older versions have written the output of sbatch: `813;cluster`.
    found = [word for line in lines if _NUMBER.fullmatch(word := line.partition(";")[0])]
    if lines and not found:
        raise UsageError(f"{path} contains no job number: {excerpt(lines[0])}", code="run-damaged",
                         hint="write the job numbers of the batch system into it, one a line")
    return list(dict.fromkeys(found))


def read(directory: Path) -> list[Link]:
    """Return the links (starts by a batch system) of the run in `directory`, the oldest first.

    A link that ended before all of its nodes had written their records is left out.

    Raises:
        UsageError: a link is damaged, missing, or has the number of another link.
    """
    found = []
    paths = sorted(place(directory).glob("link-[0-9][0-9][0-9][0-9].json"))
    for expected, path in enumerate(paths, 1):
        if int(path.stem[-4:]) != expected:
            raise _damaged(path.with_name(f"link-{expected:04}.json"), "it is missing")
        try:
            text, end = read_plain(path), _record(End, path.with_suffix(".end.json"))
            if not text:  # the nodes of the link have not written their records yet
                continue
            link = Link.model_validate_json(text)
        except ValidationError as error:
            raise _damaged(path, error.errors()[0]["msg"]) from error
        if link.number != expected:
            raise _damaged(path, f"it describes link {link.number}")
        found.append(link.model_copy(update={"end": end}))
    return found


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is damaged: {why}", code="run-damaged",
                      hint="use an undamaged copy of the run")


Record = TypeVar("Record", bound=BaseModel)


def _record(model: type[Record], path: Path) -> Record | None:
    try:
        return model.model_validate_json(read_plain(path))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise _damaged(path, error.errors()[0]["msg"]) from error


def refusal(directory: Path) -> Refusal | None:
    """Return why the script of the newest job refused to start ranks, or None if it did not.

    Raises:
        UsageError: the record is damaged.
    """
    return _record(Refusal, place(directory) / "refused.json")


def fold(record: RunRecord, directory: Path) -> RunRecord:
    """Return the record of a submitted run: `run.json` combined with the records of its starts."""
    links = read(directory)
    if not links:
        return record
    first, last = links[0], links[-1]
    initial = record.initial
    if initial is not None and initial.sha256 is None:
        initial = initial.model_copy(update={"sha256": first.initial})
    return record.model_copy(update={
        "initial": initial,
        "status": status_after(last.end.exit_status) if last.end else "running",
        "started": first.started,
        "host": first.hosts[0], "nodes": first.hosts[1:],
        "resumed": [
            ResumptionRecord(started=link.started, trimaran=record.trimaran, git=record.git,
                             host=link.hosts[0], nodes=link.hosts[1:])
            for link in links[1:]
        ],
        "ended": last.end.ended if last.end else None,
        "seconds": sum((link.end.ended - link.started).total_seconds()
                       for link in links if link.end),
        "exit_status": last.end.exit_status if last.end else None,
        "files": last.end.files if last.end else {},
    })
