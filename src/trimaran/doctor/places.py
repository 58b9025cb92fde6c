"""Compare the folders of a run with its needs: space, inodes, quota and access; check the clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from trimaran.doctor import data_folders, node_architecture, queues
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Explained, Finding, Level, found
from trimaran.doctor.folders import TITLES, Place, joined, places, relevant, title, written
from trimaran.doctor.situation import Situation

GIB = 2**30

IMAGE_BYTES = 4 * GIB
"""Free bytes that a copy of the image needs on the disk of a node.

The packages of a CUDA image are downloads of up to 3.7 GB (containers/README.md).
"""

RUN_BYTES = 200 * 2**20
"""Assumed number of free bytes that a run directory needs.

A run directory contains logs of a few MiB and the last checkpoints. ResNet-50 has 25.6 million
parameters (He et al. 2015). With parameters and momentum in fp32, a checkpoint takes 205 MB.
"""

INODES = 1000
"""A folder with fewer free inodes than this gets a warning; a Python venv alone needs more."""

SKEW_SECONDS = 2
"""Largest accepted difference in seconds between the clocks of two nodes.

NTP keeps clocks within milliseconds, and the probe reads whole seconds. A larger difference makes
the times of log lines and files of different nodes incomparable; from 300 seconds on, MUNGE refuses
the credentials of a job (munged(8), time-to-live).
"""

FINDINGS: dict[str, Explained] = {
    **queues.FINDINGS,
    **node_architecture.FINDINGS,
    **data_folders.FINDINGS,
    "place-missing": Explained(
        "places", "fail",
        "A folder of the run cannot be written, or a compute node does not share it with the login"
        " node: the run ends before it begins. It is a WARN if another folder may be used, and for"
        " one that does not answer within 5 s.",
        "name another folder, which all nodes share: scratch and local_storage of the site file,"
        " --out, TRIMARAN_CACHE",
        "for real: a read-only mount, and a folder that is missing in a mount namespace",
    ),
    "disk-space": Explained(
        "places", "fail",
        "The file system of the run directories, the scratch folder or the local storage"
        " has little space. It is a FAIL if it has none where the run writes.",
        "delete files, such as old runs, or name a folder on another disk",
        "for real: a full tmpfs in a mount namespace",
    ),
    "inodes": Explained(
        "places", "fail",
        "The file system has few free inodes: no new files can be made although space is left. It"
        " is a FAIL if there are none where the run writes.",
        "delete small files, or name a folder on another disk; packed data need few inodes",
        "for real: a tmpfs with 20 inodes in a mount namespace",
    ),
    "quota": Explained(
        "places", "fail",
        "The user's quota on a file system is used up (FAIL: hard limit; WARN: soft limit, or less"
        " than a tenth is left).",
        "delete or move files, or ask for a larger quota; `quota -s` or `lfs quota` shows it",
        "described node: quota and lfs quota",
    ),
    "clock": Explained(
        "places", "warn",
        "The clock of the node is more than 2 s before the time at which the job was submitted, or"
        " after the time of its answer: times of logs and files are wrong, and from 300 s on MUNGE"
        " refuses jobs. A clock that is slow by less than the waiting time is not found.",
        "an administrator must start chrony or ntpd on the node",
        "for real: a probe whose `date` is an hour fast",
    ),
}
"""Documentation of the findings in the group `places`, by ID."""


def check(situation: Situation) -> list[Finding]:
    """Return the findings about the folders, the queue and the clock, at most one for each ID."""
    known = relevant(situation)
    subjects = (
        _missing(situation, known), _space(situation, known), _inodes(situation, known),
        _quota(situation, known), _clock(situation),
    )
    own = [finding for finding in subjects if finding is not None]
    return [*queues.check(situation), *node_architecture.check(situation), *own,
            *data_folders.check(situation, known)]


def _level(situation: Situation, place: Place) -> Level:
    """Return the level of the finding about a folder to which the user cannot write.

    The level is "fail" if the run certainly writes to the folder. It is "warn" for the cache, which
    may already contain the image. On the login node, it is "warn" for the folder of the run
    directories, because `submit --out` may name another folder.
    """
    if place.name in {"scratch", "local"}:
        return "fail"
    runs = place.name == "runs" and situation.recipe is not None and not situation.before_job
    return "fail" if runs else "warn"


def _missing(situation: Situation, known: list[Place]) -> Finding | None:
    faults = _absent(situation)
    for place in written(known):
        if not place.writable:
            where = "" if place.folder == place.wanted else f": it would be made in {place.folder}"
            faults.append((_level(situation, place), f"{title(place)} is not writable{where}"))
    for key, fact in situation.facts.facts.items():
        name = key.removeprefix("place.")
        if key.startswith("place.") and fact.status == 124 and name in TITLES:
            faults.append(("warn", f"{TITLES[name]} did not answer within 5 s"))
    return joined(FINDINGS, "place-missing", faults, ", ".join(map(title, written(known))))


def _absent(situation: Situation) -> list[tuple[Level, str]]:
    """Return a fault for each folder that the login node has and the compute node does not have."""
    if situation.login is None:
        return []
    own = {place.name: place for place in places(situation.facts) if place.name != "local"}
    return [
        ("fail", f"{title(other)} is not on this node: the login node has {other.folder}, this node"
                 f" {own[other.name].folder}")
        for other in places(situation.login)
        if other.name in own and own[other.name].folder != other.folder
        and PurePosixPath(other.folder).is_relative_to(own[other.name].folder)
    ]


def _space(situation: Situation, known: list[Place]) -> Finding | None:
    faults: list[tuple[Level, str]] = []
    used = [place for place in written(known)
            if place.name != "cache" and place.size]  # for the cache, see `cache-space`
    for place in used:
        need = IMAGE_BYTES if place.name == "local" else RUN_BYTES
        if place.free < need:
            level = _level(situation, place) if place.free == 0 else "warn"
            faults.append((level, f"{title(place)}: {place.free / GIB:.2f} GiB free, less than"
                                  f" {need / GIB:.1f}"))
    good = [f"{title(place)}: {place.free / GIB:.0f} GiB free" for place in used]
    return joined(FINDINGS, "disk-space", faults, ", ".join(good))


def _inodes(situation: Situation, known: list[Place]) -> Finding | None:
    faults: list[tuple[Level, str]] = []
    counted = [place for place in written(known) if place.inodes is not None]
    for place in counted:
        if (left := place.inodes or 0) < INODES:
            level = _level(situation, place) if left == 0 else "warn"
            faults.append((level, f"{title(place)}: {left} free inodes"))
    good = ", ".join(f"{title(place)}: {place.inodes} free" for place in counted)
    return joined(FINDINGS, "inodes", faults, good)


@dataclass(frozen=True)
class Quota:
    """A user's quota of one resource on a file system; a limit of 0 means no limit.

    Attributes:
        what: the unit of the numbers: "KiB" or "files".
        used: current use.
        soft: limit that may be exceeded for some time.
        hard: limit that cannot be exceeded.
    """

    what: str
    used: int
    soft: int
    hard: int


def quotas(line: str) -> tuple[str, list[Quota]]:
    """Return the file system and the quotas in a line of `quota -w -p` or `lfs quota -q`.

    The line has nine columns. If a quota is exceeded, its number ends with `*`; Lustre puts
    uncertain numbers into brackets.
    """
    columns = line.split()
    if len(columns) != 9:
        return "", []
    numbers = [re.sub(r"[*\[\]]", "", column) for column in columns[1:]]
    chosen = [(what, numbers[at:at + 3]) for what, at in (("KiB", 0), ("files", 4))]
    return columns[0], [
        Quota(what, *map(int, own)) for what, own in chosen if all(map(str.isdecimal, own))
    ]


def _quota(situation: Situation, known: list[Place]) -> Finding | None:
    lines = [line for key, fact in situation.facts.facts.items()
             if key == "quota" or key.startswith("lustre-quota.") for line in fact.lines]
    faults: list[tuple[Level, str]] = []
    seen: list[str] = []
    for system, own in map(quotas, lines):
        place = next((place for place in written(known) if system in {place.device, place.mount}),
                     None)
        if place is None:
            continue
        for quota in own:
            limit = quota.hard or quota.soft
            cause = f"{title(place)}: {quota.used} of {limit} {quota.what} of the quota used"
            seen += [cause] if limit else []
            if quota.hard and quota.used >= quota.hard:
                faults.append((_level(situation, place), cause))
            elif limit and (quota.used > (quota.soft or limit) or quota.used > 0.9 * limit):
                faults.append(("warn", cause))
    return joined(FINDINGS, "quota", faults, ", ".join(seen))


def skew(facts: NodeFacts) -> int | None:
    """Return the smallest possible deviation of the node's clock in seconds.

    It is negative if the clock is slow, and None if a fact is missing. The facts `asked` and
    `answered` are the times on the login node's clock before and after the probe ran. If the node's
    clock shows a time between these two, the result is 0.
    """
    clock, asked, answered = map(facts.number, ("clock", "asked", "answered"))
    if clock is None or asked is None or answered is None:
        return None
    return min(clock - asked, 0) + max(clock - answered, 0)


def _clock(situation: Situation) -> Finding | None:
    seconds = skew(situation.facts)
    if seconds is None:
        return None
    if abs(seconds) <= SKEW_SECONDS:
        return found(FINDINGS, "clock", "ok", "the clock is that of the login node")
    way = "fast" if seconds > 0 else "slow"
    return found(FINDINGS, "clock", "warn",
                 f"the clock is at least {abs(seconds)} s {way}, compared with the login node")
