"""Check whether the ranks can start: batch system, PMI, MPI of the host, and environment."""

from __future__ import annotations

import re

from trimaran.cluster.scheduler import Shape
from trimaran.cluster.script import SCHEDULERS
from trimaran.doctor import findings
from trimaran.doctor.facts import NodeFacts
from trimaran.doctor.findings import Explained, Finding, Level
from trimaran.doctor.situation import Situation
from trimaran.doctor.versions import numbers

FINDINGS: dict[str, Explained] = {
    "batch-system": Explained(
        "ranks", "fail",
        "The commands of the cluster's batch system are on PATH of the login node.",
        "log in to the cluster's login node, or correct `scheduler` in the site file",
        "a cluster with PBS in the site file, on a described machine with Slurm",
    ),
    "pmi-flavour": Explained(
        "ranks", "fail",
        "`srun --mpi=list` offers the value of `mpi` in the site file. Otherwise srun starts no"
        " rank.",
        "set `mpi` of the cluster in the site file to a flavour that `srun --mpi=list` prints",
        "a value of `mpi` that the real srun of a two-node Slurm does not offer",
    ),
    "pmi-image": Explained(
        "ranks", "warn",
        "The Open MPI of the image understands the flavour of srun: it has PMIx only. With another"
        " flavour, each rank of MPI or Horovod is a world of its own; DDP is not affected.",
        "set `mpi: pmix` of the cluster in the site file, if `srun --mpi=list` prints it",
        "`mpi: pmi2` with the image's Open MPI",
    ),
    "pmix-version": Explained(
        "ranks", "warn",
        "srun's PMIx is of a version that works with the PMIx of the image: 2.1 or newer.",
        "ask the site for a Slurm that is built with a newer PMIx, or use the launcher mpirun",
        "an srun that offers pmix_v1 only, on a described machine",
    ),
    "host-mpi": Explained(
        "ranks", "fail",
        "The mpirun of the host is of the same kind as the MPI of the image. MPICH and Intel MPI"
        " start N ranks of Open MPI as N worlds of one rank, which end with status 0.",
        "load a module with Open MPI 4 (`modules` in the site file), or use the launcher srun",
        "the real mpirun of MPICH on PATH",
    ),
    "leaked-variables": Explained(
        "ranks", "warn",
        "The environment has no variables of another job or MPI, which a launcher would read as its"
        " own: SBATCH_* replaces options of the job script, SLURM_* options of srun.",
        "run the command in a new login shell, or unset them",
        "variables that are really set",
    ),
}


def check(situation: Situation) -> list[Finding]:
    """Return the findings about what is needed to start the ranks."""
    checks = (_batch_system, _flavour, _image_flavour, _pmix, _host_mpi, _leaked)
    return [one for one in (check(situation) for check in checks) if one is not None]


def _finding(identifier: str, level: Level, cause: str, remedy: str = "") -> Finding:
    return findings.found(FINDINGS, identifier, level, cause, remedy)


def _batch_system(situation: Situation) -> Finding | None:
    if situation.cluster is None or situation.login is not None:
        return None
    scheduler = SCHEDULERS[situation.cluster.scheduler]
    path = situation.facts.text(f"batch.{scheduler.programs[0]}")
    if path is None:
        return None
    if path:
        return _finding("batch-system", "ok", f"{scheduler.title}, {path}")
    return _finding("batch-system", "fail",
                    f"{scheduler.title}: {scheduler.programs[0]} is not on PATH")


def _by_srun(situation: Situation) -> bool | None:
    """Return whether srun passes the rank and the world size to the MPI of the image.

    Return False without Slurm; return None if the cluster has Slurm, but no recipe is given.
    """
    if situation.cluster is None or situation.cluster.scheduler != "slurm":
        return False
    if situation.recipe is None:
        return None
    shape = Shape.of(situation.recipe.recipe)
    return shape.ranks_told and not shape.mpirun


def _offered(situation: Situation) -> list[str]:
    """Return the PMI flavours that `srun --mpi=list` prints; [] if it prints no list."""
    text = situation.facts.text("srun-mpi") or ""
    if "none" not in text.split():  # every list contains `none`; an error message does not
        return []
    return re.findall(r"^\s*(?:srun:\s*)?([a-z][a-z0-9_]*)\s*$", text, re.M) + re.findall(
        r"\bpmix_v[0-9]+\b", text
    )


def _flavour(situation: Situation) -> Finding | None:
    by_srun, offered = _by_srun(situation), _offered(situation)
    if by_srun is False or not offered or situation.cluster is None:
        return None
    wanted, names = situation.cluster.mpi, ", ".join(dict.fromkeys(offered))
    if wanted in offered:
        return _finding("pmi-flavour", "ok", f"{wanted}, of {names}")
    return _finding("pmi-flavour", "fail" if by_srun else "warn",
                    f"srun has no --mpi={wanted}, only {names}")


def _image_flavour(situation: Situation) -> Finding | None:
    mpi = situation.image.values.get("mpi", "") if situation.image else ""
    if not _by_srun(situation) or situation.cluster is None or not mpi.startswith("Open MPI"):
        return None
    flavour = situation.cluster.mpi
    if flavour.startswith("pmix"):
        return _finding("pmi-image", "ok", f"{flavour}, {mpi} in the image")
    return _finding("pmi-image", "warn", f"srun --mpi={flavour} does not describe the ranks to the"
                    f" {mpi} of the image")


def _pmix(situation: Situation) -> Finding | None:
    own = situation.image.values.get("pmix", "") if situation.image else ""
    if not _by_srun(situation) or not own:
        return None
    found = sorted(int(name.rpartition("_v")[2]) for name in set(_offered(situation))
                   if name.startswith("pmix_v"))
    if not found:
        return None
    if found[-1] >= 2:
        return _finding("pmix-version", "ok", f"PMIx {found[-1]} of srun, {own} in the image")
    return _finding("pmix-version", "warn", f"srun has PMIx {found[-1]} only; the image has {own}")


KINDS = {"Open MPI": "Open MPI", "HYDRA": "MPICH", "Intel(R) MPI": "Intel MPI"}
"""A dictionary that maps a text in the output of `mpirun --version` to the MPI implementation.

MPICH prints the name HYDRA.
"""


def _host_mpi(situation: Situation) -> Finding | None:
    facts, recipe = situation.facts, situation.recipe
    path, image = facts.text("mpirun-path"), situation.image
    if path is None or recipe is None or situation.cluster is None or image is None:
        return None
    by_mpirun = Shape.of(recipe.recipe).mpirun or (
        situation.cluster.scheduler == "pbs" and recipe.recipe.launcher == "srun"
    )
    own = image.values.get("mpi") or "Open MPI"
    if not by_mpirun:
        return None
    # On the login node, it is no failure: a module that the job loads may provide mpirun.
    level: Level = "fail" if situation.login is not None else "warn"
    if not path:
        return _finding("host-mpi", level, "mpirun is not on PATH; it starts the ranks of this"
                        " recipe")
    said = facts.text("mpirun-version") or ""
    kinds = [kind for text, kind in KINDS.items() if text in said]
    if not kinds:
        return _finding("host-mpi", "warn", f"{path} is of an unknown MPI")
    version = ".".join(map(str, numbers(said.partition(kinds[0])[2] or said)))
    title = f"Open MPI {version}" if kinds[0] == "Open MPI" else kinds[0]
    text = f"{path} is {title}, the image has {own}"
    if not own.startswith(kinds[0]):
        same = not situation.before_job or _same_in_job(facts, path)
        return _finding("host-mpi", "fail" if same else "warn", text)
    if numbers(version)[:1] != (numbers(own)[:1] or numbers(version)[:1]):
        return _finding("host-mpi", "warn", f"{text}: other major version")
    return _finding("host-mpi", "ok", text)


SYSTEM = ("/usr/bin", "/bin", "/usr/local/bin")
"""Folders of programs that are usually the same on a login node and on the compute nodes."""


def _same_in_job(facts: NodeFacts, path: str) -> bool:
    """Return whether a job finds the same mpirun as the login node.

    A job loads the environment modules of the site file. It does not inherit the modules that the
    user has loaded in the shell, because Slurm starts the job with `--export=NONE`.

    Args:
        facts: the facts of the login node.
        path: path of mpirun on the login node.
    """
    if (modules := facts.text("modules")) is not None:
        return modules == "loaded"
    return path.rpartition("/")[0] in SYSTEM


HARMLESS = re.compile(
    r"SLURM_(CONF|CLUSTERS|TIME_FORMAT|ROOT|HOME|PATH|VERSION)$|PMI_(?!RANK|SIZE|FD)"
)
"""Matches variables that have the prefix of a launcher's variables, but do not describe a job."""


def _leaked(situation: Situation) -> Finding | None:
    text = situation.facts.text("variables")
    if text is None or situation.login is not None:  # a job has such variables
        return None
    names = [name for name in text.split() if not HARMLESS.match(name)]
    if not names:
        return _finding("leaked-variables", "ok", "none")
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return _finding("leaked-variables", "warn", f"set here: {', '.join(names[:5])}{more}")
