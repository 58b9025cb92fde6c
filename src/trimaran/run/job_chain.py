"""The links of a chain: each time that a batch system began the run, as its nodes wrote it down.

The nodes have no Python of ours. The script of the job writes small files into `job/`, and
`run.json` stays as it was submitted; who reads it has both folded into one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from trimaran.errors import UsageError
from trimaran.files import read_plain, read_text
from trimaran.hostfacts import HostFacts
from trimaran.run.record import JobRecord, ResumptionRecord, RunRecord, status_after
from trimaran.terminal_safety import excerpt

FOLDER = "job"
"""Where the files of the batch system are, in a run directory."""

SCRIPT = f"{FOLDER}/job.sh"

FUNCTIONS = f"{FOLDER}/functions.sh"
"""The functions that the script reads; scripts of older versions contain theirs."""

QUEUED, CANCELLED = "ids", "cancelled"
"""Files with the numbers of jobs, beside the script: a batch system soon knows them no more."""

ExitStatus = Annotated[int, Field(strict=True, ge=0, le=255)]
Step = Annotated[int, Field(strict=True, ge=0, le=10**12)]


def submitted_files(job: JobRecord) -> dict[str, str]:
    """Return the SHA-256 of each file that a job reads, by its path in the run directory."""
    functions = {} if job.functions_sha256 is None else {FUNCTIONS: job.functions_sha256}
    return {SCRIPT: job.script_sha256, **functions}


class End(BaseModel):
    """How a link ended; `step` is that of the newest checkpoint."""

    ended: AwareDatetime
    exit_status: ExitStatus
    step: Step
    reason: str
    files: dict[str, str]


class Refusal(BaseModel):
    """Why the newest job of a run started no rank; it has no link then."""

    job: str
    exit_status: ExitStatus
    reason: str


class Link(BaseModel):
    """One beginning of the run: `hosts` has every node, the first is that of rank 0."""

    number: Annotated[int, Field(strict=True, ge=1)]
    job: str
    started: AwareDatetime
    step: Step = Field(description="of the newest checkpoint; 0: none")
    hosts: list[HostFacts] = Field(min_length=1)
    end: End | None = None


def place(directory: Path) -> Path:
    """Return the folder of the batch system's files in a run directory.

    Raises:
        UsageError: it is a link, by which other files would be read and written.
    """
    folder = directory / FOLDER
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link, which is not followed",
                         hint="put the folder itself there")
    return folder


_NUMBER = re.compile(r"\d[\w.@\[\]-]*", re.ASCII)
"""The number of a job, with the name of its server: nothing that a command takes for an option."""


def numbers(directory: Path, file: str = QUEUED) -> list[str]:
    """Return the numbers of the jobs of a run, the newest last: those QUEUED, or CANCELLED here.

    What else older versions have noted there, such as a site's greeting, is left out.

    Raises:
        UsageError: the file is no plain text, or has no number at all.
    """
    path = place(directory) / file
    try:
        lines = [line for line in map(str.strip, read_text(path).splitlines()) if line]
    except FileNotFoundError:
        return []
    # `813;cluster` is what sbatch says, as job scripts of older versions have written it down.
    found = [word for line in lines if _NUMBER.fullmatch(word := line.partition(";")[0])]
    if lines and not found:
        raise UsageError(f"{path} has no number of a job: {excerpt(lines[0])}",
                         hint="write the numbers there that the batch system knows, one a line")
    return list(dict.fromkeys(found))


def read(directory: Path) -> list[Link]:
    """Return the links of the run in `directory`, the oldest first.

    One that ended before all of its nodes had told of themselves is none.

    Raises:
        UsageError: one is damaged, missing, or called by the number of another.
    """
    found = []
    paths = sorted(place(directory).glob("link-[0-9][0-9][0-9][0-9].json"))
    for expected, path in enumerate(paths, 1):
        if int(path.stem[-4:]) != expected:
            raise _damaged(path.with_name(f"link-{expected:04}.json"), "it is missing")
        try:
            text, end = read_plain(path), _end(path)
            if not text:  # while its nodes are looked at
                continue
            link = Link.model_validate_json(text)
        except ValidationError as error:
            raise _damaged(path, error.errors()[0]["msg"]) from error
        if link.number != expected:
            raise _damaged(path, f"it says that it is link {link.number}")
        found.append(link.model_copy(update={"end": end}))
    return found


def _damaged(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is damaged: {why}", hint="take an undamaged copy of the run")


def _end(path: Path) -> End | None:
    path = path.with_suffix(".end.json")
    try:
        return End.model_validate_json(read_plain(path))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise _damaged(path, error.errors()[0]["msg"]) from error


def refusal(directory: Path) -> Refusal | None:
    """Return why the job that came last to its nodes was refused there; None: it was not.

    Raises:
        UsageError: what says so is damaged.
    """
    path = place(directory) / "refused.json"
    try:
        return Refusal.model_validate_json(read_plain(path))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise _damaged(path, error.errors()[0]["msg"]) from error


def fold(record: RunRecord, directory: Path) -> RunRecord:
    """Return what is known of a submitted run: its `run.json` with the links of its chain."""
    links = read(directory) if record.job is not None else []
    if not links:
        return record
    first, last = links[0], links[-1]
    return record.model_copy(update={
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
