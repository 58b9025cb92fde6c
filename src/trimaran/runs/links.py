"""The links of a chain: each time that a batch system began the run, as its nodes wrote it down.

The nodes have no Python of ours. The script of the job writes small files into `job/`, and
`run.json` stays as it was submitted; who reads it has both folded into one.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from trimaran.errors import UsageError
from trimaran.files import read_plain
from trimaran.hostfacts import HostFacts
from trimaran.runs.record import ResumptionRecord, RunRecord, status_after

FOLDER = "job"
"""Where the files of the batch system are, in a run directory."""


class End(BaseModel):
    """How a link ended; `step` is that of the newest checkpoint."""

    ended: AwareDatetime
    exit_status: int
    step: int
    reason: str
    files: dict[str, str]


class Refusal(BaseModel):
    """Why the newest job of a run started no rank; it has no link then."""

    job: str
    exit_status: int
    reason: str


class Link(BaseModel):
    """One beginning of the run: `hosts` has every node, the first is that of rank 0."""

    number: int
    job: str
    started: AwareDatetime
    step: int = Field(description="of the newest checkpoint; 0: none")
    hosts: list[HostFacts] = Field(min_length=1)
    end: End | None = None


def read(directory: Path) -> list[Link]:
    """Return the links of the run in `directory`, the oldest first.

    One that ended before all of its nodes had told of themselves is none.

    Raises:
        UsageError: one is damaged.
    """
    found = []
    for path in sorted((directory / FOLDER).glob("link-[0-9][0-9][0-9][0-9].json")):
        try:
            if text := read_plain(path):  # empty while its nodes are looked at
                link = Link.model_validate_json(text)
                found.append(link.model_copy(update={"end": _end(path)}))
        except ValidationError as error:
            raise UsageError(f"{path} is damaged: {error.errors()[0]['msg']}") from error
    return found


def _end(path: Path) -> End | None:
    try:
        return End.model_validate_json(read_plain(path.with_suffix(".end.json")))
    except FileNotFoundError:
        return None


def refusal(directory: Path) -> Refusal | None:
    """Return why the job that came last to its nodes was refused there; None: it was not.

    Raises:
        UsageError: what says so is damaged.
    """
    path = directory / FOLDER / "refused.json"
    try:
        return Refusal.model_validate_json(read_plain(path))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        raise UsageError(f"{path} is damaged: {error.errors()[0]['msg']}") from error


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
