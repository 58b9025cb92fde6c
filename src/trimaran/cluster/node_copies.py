"""Copies of images and data on this machine's own disk, which jobs have made and not removed.

A job removes its own at its end, also where it is cancelled. One that was killed cannot: the next
job of the same user on that node does (functions.sh), or whoever looks at the cache there.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trimaran.cluster.script import SCHEDULERS
from trimaran.errors import TrimaranError, UsageError
from trimaran.files import read_text, writing
from trimaran.run import job_chain
from trimaran.site_file import Site

JOB = ".job"
"""File in the folder of a job's copies that has its number."""


@dataclass(frozen=True)
class Copies:
    """What one job has copied to this machine.

    Attributes:
        job: its number.
        ended: whether it has ended; None: its batch system does not say so.
    """

    path: Path
    job: str
    ended: bool | None

    @property
    def size(self) -> int:
        """Bytes of all files; of those that are just being removed nothing is known."""
        size = 0
        for place, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):
                    size += Path(place, name).lstat().st_size
        return size

    def remove(self) -> None:
        """Remove it all; OSError: the file system refuses."""
        shutil.rmtree(self.path)


def find(site: Site, only: Collection[str] | None = None) -> list[Copies]:
    """Return the copies of this user's jobs that are on this machine.

    Args:
        site: has the clusters, and where their nodes have disks of their own.
        only: numbers of jobs; None: of any.
    """
    found: list[Copies] = []
    places: dict[Path, set[str]] = {}
    for one in site.clusters.values():
        if one.local_storage is not None:
            places.setdefault(one.local_storage, set()).add(one.scheduler)
    for place, schedulers in places.items():
        jobs = {path: job for path, job in _folders(place) if only is None or job in only}
        ended = _ended(schedulers, set(jobs.values())) if jobs else {}
        found += [Copies(path, job, ended[job]) for path, job in jobs.items()]
    return found


def remove_ended(site: Site, directories: list[Path]) -> list[Copies]:
    """Remove what ended jobs of these runs have left on this machine, and return it.

    Raises:
        UsageError: the numbers of a run's jobs cannot be read.
        RunError: the file system refuses.
    """
    own = {job for directory in directories for job in job_chain.numbers(directory)}
    found = [one for one in find(site, own) if one.ended]
    for one in found:
        with writing(f"remove {one.path}", one.path):
            one.remove()
    return found


def _folders(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders of jobs of this user below `place`, and the numbers that are in them."""
    for path in sorted(place.glob("trimaran-*")):
        try:
            facts = path.lstat()
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid():
                yield path, read_text(path / JOB).strip()
        except (OSError, UsageError):  # a job that ends removes its own; what has no number stays
            continue


def _ended(schedulers: Collection[str], jobs: Collection[str]) -> dict[str, bool | None]:
    """Return which of the jobs have ended, as every batch system says whose nodes share the disk.

    None: one of them does not answer.
    """
    try:
        answers = [SCHEDULERS[name].states(sorted(jobs)) for name in schedulers]
    except TrimaranError:
        return dict.fromkeys(jobs)
    return {
        job: not any(job in known and known[job].active for known in answers) for job in jobs
    }
