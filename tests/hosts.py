"""Simulated machines for the tests of `trimaran doctor`, on which the real probe runs.

A machine is a folder of `tests/doctor/hosts`: files of /proc, /sys, /dev and /etc, and programs in
`bin` that print what the real ones would. ORIGIN.md has the sources of the description.
"""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from trimaran.doctor import examination, facts, image_facts
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Finding
from trimaran.doctor.situation import ImageFacts, Situation
from trimaran.images import definition
from trimaran.recipes import library
from trimaran.site_file import Cluster, Site

HOSTS = Path(__file__).parent / "doctor/hosts"

TOOLS = (
    "basename cat comm cut date dd df dirname du echo env expr false find grep head id join ls"
    " mkdir mktemp mv nproc od paste printf pwd readlink realpath rm sed seq sh sleep sort stat"
    " sync tail tee test timeout touch tr true uname uniq wc"
)
"""The programs that every node has: coreutils, find, grep, sed."""


@functools.cache
def tools() -> Path:
    """Return a folder with `TOOLS` and no other program."""
    folder = Path(tempfile.mkdtemp(prefix="tools-"))
    for name in TOOLS.split():
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return folder


def copy(name: str, place: Path) -> Path:
    """Copy the files that describe the simulated machine `name`; return the folder of the copy.

    The copy is a folder in `place`, where a test may change the files.
    """
    return Path(shutil.copytree(HOSTS / name, place / name))


def program(root: Path, name: str, script: str) -> None:
    """Add a fake program to the folder `bin` of the simulated machine in the folder `root`."""
    (root / "bin").mkdir(parents=True, exist_ok=True)
    (root / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
    (root / "bin" / name).chmod(0o755)


def facts_of(
    root: Path | str, env: Mapping[str, str] | None = None, groups: Sequence[str] | None = None,
    **parameters: str,
) -> NodeFacts:
    """Probe a simulated machine, and return its facts, or only the facts of some groups.

    Args:
        root: name of the machine, or the folder of a copy.
        env: variables of the probe.
        groups: names of the groups; None: all.
        parameters: parameters of the probe.
    """
    place = HOSTS / root
    path = os.pathsep.join([str(place / "bin"), str(tools())])
    return facts.of_this_host(
        {"root": str(place), **parameters}, {"PATH": path, "HOME": str(place), **(env or {})},
        groups,
    )


def situation(
    known: NodeFacts, *, recipe: str | None = None, image: str | None = None,
    cluster: Cluster | None = None, login: NodeFacts | None = None,
) -> Situation:
    """Return the input of the checks: facts, recipe, and image (`image`, or the recipe's image)."""
    file = library.load(recipe) if recipe is not None else None
    about = examination.situation(Site(), cluster, file)
    own: ImageFacts | None = about.image
    if image is not None:
        own = image_facts.of_image(definition.load(image))
    return Situation(known, about.site, login, cluster, file, about.target, own)


def finding(identifier: str, found: Iterable[Finding]) -> Finding:
    """Return the only finding with this ID."""
    [one] = [one for one in found if one.id == identifier]
    return one


def caused(identifier: str, found: Iterable[Finding], level: str | None = None) -> Finding:
    """Return the finding that a test has caused, after a check of its level, cause and remedy."""
    one = finding(identifier, found)
    assert one.level != "ok", one
    assert level in (None, one.level), one
    assert one.cause
    assert one.remedy
    return one
