"""What a login node tells of its cluster, for a site file to begin with."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trimaran import site_file
from trimaran.cluster import scheduler
from trimaran.cluster.script import SCHEDULERS
from trimaran.errors import RunError, UsageError
from trimaran.files import write_atomic
from trimaran.parsing import Malformed, parse_json
from trimaran.reporting import Reporter, Silent

FLAVOURS = ("pmix", "pmi2", "cray_shasta", "none")
"""Of `srun --mpi=`, the best for the images' Open MPI first."""

QUESTIONS = {
    "partition": "Partition or queue (empty: the default one)",
    "account": "Account whose hours are used (empty: none)",
    "qos": "Quality of service, or LSF's service class (empty: none)",
    "constraint": "Features that nodes must have, such as ib&a100 (empty: any node)",
    "modules": "Environment modules that a job loads, such as apptainer/1.4 (empty: none)",
    "apptainer": "Path of Apptainer on the nodes (empty: as here, or on PATH there)",
    "mpi": "Flavour of `srun --mpi=` for the images' Open MPI (empty: pmix)",
    "gres": "What Slurm calls a GPU, such as gpu:a100 (empty: gpu)",
    "flags": "More flags for `apptainer exec`, such as --userns (empty: none)",
    "env": "Variables for the network, such as NCCL_SOCKET_IFNAME=ib0 (empty: none)",
    "data": "Folder with packed data sets by name (empty: Trimaran's cache)",
    "scratch": "Folder for runs, which all nodes see (empty: where trimaran is called)",
    "local_storage": "A node's own disk, to copy images to (empty: none)",
}
"""What is asked, by the key of the site file."""

_WORDS = {"qos": ("slurm", "lsf"), "mpi": ("slurm",), "gres": ("slurm",)}
"""Which batch systems have words for a key; all for the others."""

SECONDS = 10.0
"""How long a command may take to tell what the user could answer as well."""

NETWORK = Path("/sys/class/net")


def questions(facts: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return what is asked of a cluster: by its key the question, and what Enter takes."""
    loaded = os.environ.get("LOADEDMODULES", "").split(":")
    modules = [name for name in loaded if name.startswith(("apptainer", "singularity"))]
    fast = sorted(path.name for path in NETWORK.glob("ib*"))
    taken = {"modules": " ".join(modules), "env": f"NCCL_SOCKET_IFNAME={fast[0]}" if fast else ""}
    return {
        key: (question, str(facts.get(key, taken.get(key, ""))))
        for key, question in QUESTIONS.items()
        if facts["scheduler"] in _WORDS.get(key, SCHEDULERS)
    }


def answered(key: str, answer: str) -> object:
    """Return an answer as the site file has it; None: the key is left out.

    Raises:
        UsageError: it is none.
    """
    words = answer.split()
    if not words:
        return None
    if key in ("modules", "flags"):
        return words
    if key == "env":
        if wrong := [word for word in words if "=" not in word]:
            raise UsageError(f"'{wrong[0]}' is no NAME=VALUE")
        return dict(word.split("=", 1) for word in words)
    return answer.strip()


def limit(facts: Mapping[str, Any], reporter: Reporter | None = None) -> str | None:
    """Return how long a job may take in Slurm's partition, as Slurm writes it.

    None: for ever, or nobody tells.
    """
    if facts["scheduler"] != "slurm" or "partition" not in facts:
        return None
    words = ["scontrol", "--oneliner", "show", "partition", str(facts["partition"])]
    said = _said(words, reporter or Silent())
    most = re.search(r"\bMaxTime=(\S+)", said)
    return most[1] if most and most[1] != "UNLIMITED" else None


def found(reporter: Reporter | None = None) -> dict[str, Any]:
    """Return the keys of a cluster, as the batch system's commands tell them.

    What one of them does not tell in time is left out, and said.

    Raises:
        UsageError: no batch system's commands are here.
        RunError: it does not answer at all.
    """
    for name, one in SCHEDULERS.items():
        if shutil.which(one.programs[0]):
            one.check()
            return {"scheduler": name, **_ASK[name](reporter or Silent())}
    programs = ", ".join(one.programs[0] for one in SCHEDULERS.values())
    raise UsageError(f"no batch system is here: none of {programs} is on PATH",
                     hint="log in to the cluster's login node; make cluster starts one to learn"
                     " with")


def _slurm(reporter: Reporter) -> dict[str, Any]:
    with reporter.bar("asking sinfo", None):
        told = scheduler.ask(["sinfo", "--noheader", "--format=%P"], SECONDS)
    if told.returncode != 0:
        raise RunError(f"sinfo does not answer: {scheduler.words(told)}")
    partitions = _alone(told.stdout)
    default = next((name for name in partitions if name.endswith("*")), "".join(partitions[:1]))
    facts: dict[str, Any] = {"partition": default.rstrip("*")} if default else {}
    user = str(os.environ.get("USER") or os.getuid())
    words = ["sacctmgr", "-nP", "show", "user", user, "format=DefaultAccount"]
    if accounts := _alone(_said(words, reporter)):
        facts["account"] = accounts[-1]
    if flavours := re.findall(r"[\w-]+", _said(["srun", "--mpi=list"], reporter, errors=True)):
        facts["mpi"] = next((name for name in FLAVOURS if name in flavours), "none")
    resources = _said(["sinfo", "--noheader", "--format=%G"], reporter)
    if gpus := re.search(r"\b(gpu(?::[A-Za-z][\w.-]*)?):\d", resources):
        facts["gres"] = gpus[1]
    return facts


def _alone(said: str) -> list[str]:
    """Return the names that stand alone in lines: a site may have its commands say more."""
    return re.findall(r"^[ \t]*([A-Za-z0-9][A-Za-z0-9_.:+-]*\*?)[ \t]*$", said, re.M)


def _pbs(reporter: Reporter) -> dict[str, Any]:
    """Return the default queue, which qstat tells in JSON, or in lines where that is none."""
    said = _said(["qstat", "-B", "-f", "-F", "json"], reporter)
    try:
        servers = parse_json(said)["Server"]
        queue = next(iter(servers.values()))["default_queue"]
    except (Malformed, LookupError, TypeError, AttributeError, StopIteration):
        line = re.search(r'\bdefault_queue"?\s*[:=]\s*"?([\w.-]+)', said)
        if line is None:
            return {}
        queue = line[1]
    return {"partition": str(queue)}


def _lsf(reporter: Reporter) -> dict[str, Any]:
    queue = re.search(r"DEFAULT_QUEUE\s*=\s*(\S+)", _said(["bparams", "-a"], reporter))
    return {"partition": queue[1]} if queue else {}


_ASK = {"slurm": _slurm, "pbs": _pbs, "lsf": _lsf}


def _said(words: list[str], reporter: Reporter, *, errors: bool = False) -> str:
    """Return what a command says; nothing where it is not here, fails, or does not answer.

    With `errors` also what it says on standard error, and whatever its status.
    """
    if shutil.which(words[0]) is None:
        return ""
    try:
        with reporter.bar(f"asking {words[0]}", None):
            done = scheduler.ask(words, SECONDS)
    except RunError as error:
        reporter.warn(f"{error}: what it would tell is left out")
        return ""
    if errors:
        return done.stdout + done.stderr
    return done.stdout.strip() if done.returncode == 0 else ""


def refuse_old(path: Path, name: str) -> None:
    """Raise UsageError where there is a site file: it is the user's own."""
    if path.exists():
        raise UsageError(
            f"{path} is there, and is not changed",
            hint=f"add clusters: {{{name}: ...}} to it by hand:"
            " site/docs/tutorials/cluster.md has the keys",
        )


def write(path: Path, name: str, facts: Mapping[str, object]) -> None:
    """Write a site file with one cluster; one that is there stays as it is.

    Raises:
        UsageError: it is there, or a fact is none that a site file may hold; nothing is left then.
    """
    refuse_old(path, name)
    cluster = {key: value for key, value in facts.items() if value is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, yaml.safe_dump({"schema": 1, "clusters": {name: cluster}}, sort_keys=False))
    try:
        site_file.load(path)
    except UsageError:
        path.unlink()
        raise
