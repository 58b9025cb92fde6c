"""Detect the facts of a cluster on its login node, and write a first site file."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trimaran import site_file
from trimaran.architectures import Architecture, of_machine
from trimaran.cluster import scheduler, slurm
from trimaran.cluster.script import SCHEDULERS
from trimaran.errors import RunError, UsageError
from trimaran.files import write_atomic
from trimaran.parsing import Malformed, parse_json
from trimaran.reporting import Reporter, Silent

FLAVOURS = ("pmix", "pmi2", "cray_shasta", "none")
"""Values of `srun --mpi=`, in order of preference for the Open MPI of the images."""

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
"""Key of the site file -> question for the user."""

LAST_QUESTIONS = {
    "architecture": "Processors of the nodes: amd64 or arm64 (empty: as in the recipe's target)",
}
"""Like `QUESTIONS`, for what depends on the answers to these: partition and constraint."""

_WORDS = {"qos": ("slurm", "lsf"), "mpi": ("slurm",), "gres": ("slurm",)}
"""Key of the site file -> batch systems that support this key.

All batch systems support the keys that are not listed here.
"""

PARTITIONS = ["sinfo", "--noheader", "--format=%P"]
"""Command that lists the partitions of Slurm; it marks the default one with an asterisk."""

SECONDS = 10.0
"""Time limit, in seconds, for a command that detects one fact."""

NETWORK = Path("/sys/class/net")


def questions(
    facts: Mapping[str, Any], asked: Mapping[str, str] = QUESTIONS
) -> dict[str, tuple[str, str]]:
    """Return the questions about a cluster by key, each with its text and its default answer.

    Args:
        facts: the values that are known, which are the default answers.
        asked: the questions: `QUESTIONS` or `LAST_QUESTIONS`.
    """
    loaded = os.environ.get("LOADEDMODULES", "").split(":")
    modules = [name for name in loaded if name.startswith(("apptainer", "singularity"))]
    fast = sorted(path.name for path in NETWORK.glob("ib*"))
    taken = {"modules": " ".join(modules), "env": f"NCCL_SOCKET_IFNAME={fast[0]}" if fast else ""}
    return {
        key: (question, str(facts.get(key, taken.get(key, ""))))
        for key, question in asked.items()
        if facts["scheduler"] in _WORDS.get(key, SCHEDULERS)
    }


def answered(key: str, answer: str) -> object:
    """Return the value of `key` for the site file from an answer; None if the answer is empty.

    Raises:
        UsageError: a variable of `env` does not have the form NAME=VALUE.
    """
    words = answer.split()
    if not words:
        return None
    if key in ("modules", "flags"):
        return words
    if key == "env":
        if wrong := [word for word in words if "=" not in word]:
            raise UsageError(f"env: '{wrong[0]}' does not have the form NAME=VALUE",
                             code="argument-invalid", hint="such as NCCL_SOCKET_IFNAME=ib0")
        return dict(word.split("=", 1) for word in words)
    return answer.strip()


def limit(facts: Mapping[str, Any], reporter: Reporter | None = None) -> str | None:
    """Return the time limit of the Slurm partition in Slurm's notation.

    Return None if the partition has no limit, or if the limit is unknown.
    """
    if facts["scheduler"] != "slurm" or "partition" not in facts:
        return None
    words = ["scontrol", "--oneliner", "show", "partition", str(facts["partition"])]
    output = _output(words, reporter or Silent())
    most = re.search(r"\bMaxTime=(\S+)", output)
    return most[1] if most and most[1] != "UNLIMITED" else None


def architecture(
    facts: Mapping[str, Any], reporter: Reporter | None = None
) -> dict[str, Architecture]:
    """Return the processor architecture of the nodes as a value for the site file.

    They are the nodes of the partition in `facts`, or else of Slurm's default partition, that have
    the features in `constraint`. Return {} if they differ, if no image supports them, or if Slurm
    reports no architecture; other batch systems are not asked.
    """
    if facts["scheduler"] != "slurm":
        return {}
    reporter = reporter or Silent()
    partition = facts.get("partition") or _default(_output(PARTITIONS, reporter))
    nodes = _output(["scontrol", "--oneliner", "show", "node"], reporter)
    machines = slurm.architectures(nodes, partition, facts.get("constraint"))
    known = of_machine(machines.pop()) if len(machines) == 1 else None
    return {"architecture": known} if known is not None else {}


def detect(reporter: Reporter | None = None) -> dict[str, Any]:
    """Return the values for the site file that the batch system of this cluster reports.

    `architecture` returns that of the nodes, which depends on the partition that the user chooses.
    If a command does not answer in time, its values are left out, with a warning.

    Raises:
        UsageError: the commands of no batch system are on PATH.
        RunError: the batch system does not answer.
    """
    for name, system in SCHEDULERS.items():
        if shutil.which(system.programs[0]):
            system.check()
            return {"scheduler": name, **_ASK[name](reporter or Silent())}
    programs = ", ".join(system.programs[0] for system in SCHEDULERS.values())
    raise UsageError(f"no batch system on this machine: none of {programs} is on PATH",
                     code="scheduler-missing",
                     hint="log in to the cluster's login node; `make cluster` starts a small"
                     " cluster to learn with")


def _slurm(reporter: Reporter) -> dict[str, Any]:
    with reporter.bar("running sinfo", None):
        done = scheduler.ask(PARTITIONS, SECONDS)
    if done.returncode != 0:
        raise RunError(f"sinfo failed: {scheduler.words(done)}", code="scheduler-failed",
                       hint="check here that `sinfo` lists the partitions of the cluster")
    default = _default(done.stdout)
    facts: dict[str, Any] = {"partition": default} if default else {}
    user = str(os.environ.get("USER") or os.getuid())
    words = ["sacctmgr", "-nP", "show", "user", user, "format=DefaultAccount"]
    if accounts := _alone(_output(words, reporter)):
        facts["account"] = accounts[-1]
    if flavours := re.findall(r"[\w-]+", _output(["srun", "--mpi=list"], reporter, errors=True)):
        facts["mpi"] = next((name for name in FLAVOURS if name in flavours), "none")
    resources = _output(["sinfo", "--noheader", "--format=%G"], reporter)
    if gpus := re.search(r"\b(gpu(?::[A-Za-z][\w.-]*)?):\d", resources):
        facts["gres"] = gpus[1]
    return facts


def _default(listed: str) -> str | None:
    """Return the partition that Slurm marks as the default one, or else the first one, if any.

    `listed` is the output of the command `PARTITIONS`.
    """
    names = _alone(listed)
    marked = next((name for name in names if name.endswith("*")), None)
    return marked.rstrip("*") if marked else next(iter(names), None)


def _alone(text: str) -> list[str]:
    """Return the lines of `text` that are a single name; omit other lines, such as warnings."""
    return re.findall(r"^[ \t]*([A-Za-z0-9][A-Za-z0-9_.:+-]*\*?)[ \t]*$", text, re.M)


def _pbs(reporter: Reporter) -> dict[str, Any]:
    """Return the default queue of PBS, which qstat prints as JSON, or in older versions as text."""
    output = _output(["qstat", "-B", "-f", "-F", "json"], reporter)
    try:
        servers = parse_json(output)["Server"]
        queue = next(iter(servers.values()))["default_queue"]
    except (Malformed, LookupError, TypeError, AttributeError, StopIteration):
        line = re.search(r'\bdefault_queue"?\s*[:=]\s*"?([\w.-]+)', output)
        if line is None:
            return {}
        queue = line[1]
    return {"partition": str(queue)}


def _lsf(reporter: Reporter) -> dict[str, Any]:
    queue = re.search(r"DEFAULT_QUEUE\s*=\s*(\S+)", _output(["bparams", "-a"], reporter))
    return {"partition": queue[1]} if queue else {}


_ASK = {"slurm": _slurm, "pbs": _pbs, "lsf": _lsf}


def _output(words: list[str], reporter: Reporter, *, errors: bool = False) -> str:
    """Return the standard output of a command, or "" if it is missing, fails or times out.

    If `errors` is true, the standard error is appended, and the exit status is ignored.
    """
    if shutil.which(words[0]) is None:
        return ""
    try:
        with reporter.bar(f"running {words[0]}", None):
            done = scheduler.ask(words, SECONDS)
    except RunError as error:
        reporter.warn(f"{error}: its values are left out")
        return ""
    if errors:
        return done.stdout + done.stderr
    return done.stdout.strip() if done.returncode == 0 else ""


def refuse_old(path: Path, name: str) -> None:
    """Check that no site file exists at `path`, because an existing file is never changed.

    Raises:
        UsageError: `path` exists.
    """
    if path.exists():
        raise UsageError(
            f"{path} exists, and is not changed", code="file-exists",
            hint=f"add clusters: {{{name}: ...}} to it by hand:"
            " site/docs/tutorials/cluster.md lists the keys",
        )


def write(path: Path, name: str, facts: Mapping[str, object]) -> None:
    """Write a site file with one cluster. An existing file is not changed.

    Raises:
        UsageError: the file exists, or a fact is not valid in a site file; no file is written.
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
