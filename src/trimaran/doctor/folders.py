"""The folders of a run on one node: their file systems, space, and the access of the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Explained, Finding, Level, found
from trimaran.doctor.situation import Situation

TITLES = {
    "cache": "the cache", "scratch": "the scratch folder", "local": "the local storage",
    "runs": "the folder of run directories",
}
"""A dictionary that maps the name of a folder to its title in messages."""


@dataclass(frozen=True)
class Place:
    """A folder that a run uses, and its file system.

    Attributes:
        name: a key of `TITLES`, or `data-1`, `data-2` ... for the packed data sets.
        wanted: path of the folder, which need not exist.
        folder: the folder, or the nearest folder above it that exists.
        writable: whether the user may write there.
        kind: type of the file system, such as `nfs`.
        size: size of the file system in bytes; 0: the file system does not report it.
        free: number of bytes that the user can still write.
        inodes: number of free inodes; None if the file system does not report it.
        mount: mount point.
        device: device or server of the file system.
    """

    name: str
    wanted: str
    folder: str
    writable: bool
    kind: str
    size: int
    free: int
    inodes: int | None
    mount: str
    device: str


def relevant(situation: Situation) -> list[Place]:
    """Return the folders that the run uses on this node, each folder once.

    Only compute nodes have the local storage of the site file. Only the login node, or a machine
    without a cluster, writes into the cache.
    """
    other = {"local"} if situation.before_job else set()
    if situation.login is not None:
        other = {"cache"}
    once: dict[str, Place] = {}
    for place in sorted(places(situation.facts), key=lambda place: place.name == "cache"):
        if place.name not in other:
            once.setdefault(place.wanted if place.name in TITLES else place.name, place)
    return list(once.values())


def places(facts: NodeFacts) -> list[Place]:
    """Return the folders that the facts of a node describe, such as its cache and scratch folders.

    A folder with incomplete facts is left out.
    """
    rows = [place_of(name, text) for name, text in facts.under("place").items()]
    return [row for row in rows if row is not None]


def place_of(name: str, text: str) -> Place | None:
    """Return the folder that `text`, the text of the fact `place.NAME`, describes.

    Return None if the text is incomplete.
    """
    lines = text.splitlines()
    columns = lines[3].split(maxsplit=5) if len(lines) == 5 else []
    if len(columns) != 6 or not all(column.isdecimal() for column in columns[1:3]):
        return None
    kind, size, free, total, inodes, mount = columns
    counted = total.isdecimal() and int(total) > 0 and inodes.isdecimal()
    return Place(name, lines[0], lines[1], lines[2] == "writable", kind, int(size) * 1024,
                 int(free) * 1024, int(inodes) if counted else None, mount, lines[4])


def title(place: Place) -> str:
    """Return the title and the path of a folder, for a message."""
    return f"{TITLES.get(place.name, 'the data set')} {place.wanted}"


def written(places_: list[Place]) -> Iterator[Place]:
    """Yield the folders to which a run or a build writes: all except the packed data sets."""
    yield from (place for place in places_ if place.name in TITLES)


def joined(
    table: Mapping[str, Explained], identifier: str, faults: list[tuple[Level, str]], good: str
) -> Finding | None:
    """Return one finding about all faults of one kind.

    Args:
        table: documentation of the IDs.
        identifier: ID of the finding.
        faults: level and cause of each fault.
        good: the cause of the finding if there are no faults. The finding then has the level "ok".
            If `good` is empty, too, the function returns None.
    """
    if not faults:
        return found(table, identifier, "ok", good) if good else None
    level: Level = "fail" if any(level == "fail" for level, _ in faults) else "warn"
    causes = dict.fromkeys(cause for _, cause in faults)
    return found(table, identifier, level, "; ".join(causes))
