"""Check the file systems that contain the packed data sets and the caches of compilers."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from trimaran import process
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Explained, Finding, Level, found
from trimaran.doctor.folders import Place, joined, place_of
from trimaran.doctor.situation import Situation

MANY_FILES = 10_000
"""A data set with more files than this is considered not packed; the rest is not counted."""

MOST_STRIPES = 16
"""Largest recommended number of Lustre stripes of a file.

With fewer nodes than this, one stripe per node is recommended.
"""

NETWORK_FILE_SYSTEMS = {
    "9p", "afs", "beegfs", "ceph", "cifs", "cvmfs", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs",
    "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb3", "virtiofs",
    "wekafs",
}
"""Types of network file systems, as /proc/self/mountinfo names them."""

LOCAL_FILE_SYSTEMS = {
    "bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs",
    "rootfs", "tmpfs", "xfs", "zfs",
}
"""Types of file systems on the disk or in the memory of the node, in the same notation.

These are the types for which a job and an image print no warning about compiled code
(`cluster/functions.sh`, `images/compiler_caches.sh`). Those name them as stat does.
"""

COMPILER_CACHES = (
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "MIOPEN_USER_DB_PATH", "MIOPEN_CUSTOM_CACHE_DIR",
    "CUDA_CACHE_PATH", "PYTORCH_KERNEL_CACHE_PATH", "TRITON_HOME", "XDG_CACHE_HOME",
)
"""Environment variables that set the folder of a compiler's cache.

XDG_CACHE_HOME is included, because a compiler may put its cache below it by default.
"""

FINDINGS: dict[str, Explained] = {
    "compiler-cache": Explained(
        "places", "warn",
        "The cache of a compiler (Inductor, Triton, MIOpen) is on a file system that is not known"
        " to be local, such as NFS, Lustre or FUSE: all ranks write and lock many small files"
        " there, which delays the first step.",
        "point the variable to the node's disk, choose a run directory there (--out), or set"
        " local_storage in the site file",
        "described nodes with NFS, Lustre and FUSE",
    ),
    "lustre-stripes": Explained(
        "places", "warn",
        "Large data files with one stripe are on one storage target of Lustre: all nodes read from"
        " one server.",
        "stripe the files over several targets: lfs migrate -c COUNT FILE",
        "described node: lfs getstripe",
    ),
    "small-files": Explained(
        "places", "warn",
        "The data set consists of many files on a network file system: each of them is a"
        " request to the metadata server, which all users of the file system share.",
        "pack the data (`trimaran data pack FOLDER -o DIR`), or set stage_data in the site file",
        "10,002 real files, on a described NFS mount",
    ),
}
"""Documentation of the findings about data sets and compiler caches, by ID."""


def check(situation: Situation, known: list[Place]) -> list[Finding]:
    """Return the findings about data sets and compiler caches.

    `known` contains the folders that the run uses on this node.
    """
    subjects = (
        _compiler_cache(situation, known), _stripes(situation),
        _small_files(situation.facts, known),
    )
    return [finding for finding in subjects if finding is not None]


def file_system(facts: NodeFacts, folder: str) -> str | None:
    """Return the type of the file system that contains `folder`; None if it is unknown.

    The type is in /proc/self/mountinfo (proc(5)).
    """
    best: tuple[int, str] | None = None
    for line in (facts.text("mountinfo") or "").splitlines():
        fields, _, end = line.partition(" - ")
        columns = fields.split()
        if len(columns) < 5 or not end:
            continue
        mount = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), columns[4])
        depth = len(PurePosixPath(mount).parts)
        if PurePosixPath(folder).is_relative_to(mount) and (best is None or depth >= best[0]):
            best = depth, end.split()[0]
    return best[1] if best else None


def _compiler_cache(situation: Situation, known: list[Place]) -> Finding | None:
    if situation.recipe is None:
        return None
    cluster = situation.cluster
    variables = {**(cluster.env if cluster else {}), **situation.recipe.recipe.env}
    chosen = {name: _on_host(situation, variables[name]) for name in COMPILER_CACHES
              if name in variables}
    if cluster is None and situation.recipe.recipe.args.get("compile", "off") != "off":
        # `trimaran run` compiles into a folder of the run directory; a job, on the node's disk.
        chosen |= {f"the compiler's folder in {place.wanted}": place.wanted
                   for place in known if place.name == "runs"}
    chosen |= _of_job(situation)
    causes: list[tuple[Level, str]] = []
    for name, folder in chosen.items():
        kind = file_system(situation.facts, folder) if folder else None
        if kind is not None and kind not in LOCAL_FILE_SYSTEMS:
            causes.append(("warn", f"{name} is {folder}, on {kind}"))
    good = ", ".join(f"{name}: {folder}" for name, folder in chosen.items() if folder)
    return joined(FINDINGS, "compiler-cache", causes, good)


def _of_job(situation: Situation) -> dict[str, str]:
    """Return the folder in which a job keeps compiled code, by what names it; empty: no job.

    The login node does not have the temporary folder and the local storage of the compute nodes.
    """
    cluster = situation.cluster
    if cluster is None:
        return {}
    if cluster.compiler_caches is not None:
        return {"compiler_caches of the site file": str(cluster.compiler_caches)}
    if situation.before_job:
        return {}
    if cluster.local_storage is not None:
        return {"local_storage of the site file": str(cluster.local_storage)}
    folder = situation.facts.text("temporary")
    return {"the temporary folder of the node (TMPDIR)": folder} if folder else {}


def _on_host(situation: Situation, folder: str) -> str | None:
    """Return the path on the host of a folder in the container.

    Return None if the folder is in no bind mount.
    """
    for source, target in situation.site.binds.items():
        if PurePosixPath(folder).is_relative_to(target):
            return str(PurePosixPath(source, PurePosixPath(folder).relative_to(target)))
    return None


def _stripes(situation: Situation) -> Finding | None:
    facts = situation.facts
    if situation.recipe is None or situation.recipe.recipe.resources.nodes == 1:
        return None
    stripes = min(situation.recipe.recipe.resources.nodes, MOST_STRIPES)
    single, counted, where = 0, 0, ""
    for number, text in facts.under("stripes").items():
        place = place_of("", facts.text(f"place.data-{number}") or "")
        if place is None or place.kind != "lustre":
            continue
        counts = [line for line in text.split() if line.lstrip("-").isdecimal()]
        counted += len(counts)
        if counts.count("1"):
            single, where = single + counts.count("1"), where or place.wanted
    if not counted:
        return None
    if not single:
        return found(FINDINGS, "lustre-stripes", "ok",
                     f"{counted} files of more than 1 GiB have several stripes")
    return found(
        FINDINGS, "lustre-stripes", "warn",
        f"{single} of {counted} files of more than 1 GiB in {where} have one stripe",
        process.shell_line(["find", where, "-type", "f", "-size", "+1048576k", "-exec", "lfs",
                            "migrate", "-c", str(stripes), "{}", ";"]),
    )


def _small_files(facts: NodeFacts, known: list[Place]) -> Finding | None:
    causes: list[tuple[Level, str]] = []
    good = []
    for place in known:
        count = facts.number(f"files.{place.name.removeprefix('data-')}")
        if not place.name.startswith("data-") or count is None:
            continue
        cause = f"{place.wanted} has {min(count, MANY_FILES)} files on {place.kind}"
        if count > MANY_FILES:
            cause = cause.replace("has ", "has more than ")
        many = count > MANY_FILES and place.kind in NETWORK_FILE_SYSTEMS
        if many:
            causes.append(("warn", cause))
        good.append(cause)
    return joined(FINDINGS, "small-files", causes, ", ".join(good))
