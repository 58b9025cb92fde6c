"""Find and remove copies of images and data that jobs left on the disk of this node.

A job removes its copies when it ends or is cancelled. If it is killed, the next job of the same
user on that node (functions.sh), `trimaran cache prune` or `trimaran cancel` removes them.
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
"""Name of the file with the job number in the folder of a job's copies."""


@dataclass(frozen=True)
class Copies:
    """The copies of images and data that one job has put on the disk of this machine.

    Attributes:
        path: folder of the copies.
        job: number of the job.
        ended: whether the job has ended; None: the batch system does not answer.
    """

    path: Path
    job: str
    ended: bool | None

    @property
    def size(self) -> int:
        """Total size of the files in bytes, except files that are removed during the count."""
        size = 0
        for place, _, names in os.walk(self.path):
            for name in names:
                with suppress(OSError):
                    size += Path(place, name).lstat().st_size
        return size

    def remove(self) -> None:
        """Remove the folder.

        Raises:
            OSError: the folder cannot be removed.
        """
        shutil.rmtree(self.path)


def find(site: Site, only: Collection[str] | None = None) -> list[Copies]:
    """Return the copies of images and data that this user's jobs have on the disk of this machine.

    Args:
        site: the site file, which names the local storage of each cluster.
        only: job numbers to look for; None: all.
    """
    copies: list[Copies] = []
    places: dict[Path, set[str]] = {}
    for cluster in site.clusters.values():
        if cluster.local_storage is not None:
            places.setdefault(cluster.local_storage, set()).add(cluster.scheduler)
    for place, schedulers in places.items():
        jobs = {path: job for path, job in _folders(place) if only is None or job in only}
        ended = _ended(schedulers, set(jobs.values())) if jobs else {}
        copies += [Copies(path, job, ended[job]) for path, job in jobs.items()]
    return copies


def remove_ended(site: Site, directories: list[Path]) -> list[Copies]:
    """Remove copies of images and data that ended jobs of runs left on this machine.

    Return the removed copies.

    Args:
        site: the site file, which names the local storage of each cluster.
        directories: run directories of the runs.

    Raises:
        UsageError: the job numbers of a run cannot be read.
        RunError: the copies cannot be removed.
    """
    own = {job for directory in directories for job in job_chain.numbers(directory)}
    copies = [left for left in find(site, own) if left.ended]
    for left in copies:
        with writing(f"remove {left.path}", left.path):
            left.remove()
    return copies


def _folders(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield the folders of this user's jobs below `place`, each with its job number."""
    for path in sorted(place.glob("trimaran-*")):
        try:
            facts = path.lstat()
            if stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid():
                yield path, read_text(path / JOB).strip()
        except (OSError, UsageError):  # removed meanwhile, or without a job number
            continue


def _ended(schedulers: Collection[str], jobs: Collection[str]) -> dict[str, bool | None]:
    """Return for each job True if it has ended, and False if a batch system lists it as active.

    All of `schedulers` are asked, because a job number does not show its batch system. If one of
    these batch systems does not answer, the value is None for every job.
    """
    try:
        answers = [SCHEDULERS[name].states(sorted(jobs)) for name in schedulers]
    except TrimaranError:
        return dict.fromkeys(jobs)
    return {
        job: not any(job in known and known[job].active for known in answers) for job in jobs
    }
