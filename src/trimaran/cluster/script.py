"""Render the script of a job: resources, checks on each node, and the start of the ranks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from trimaran import __version__
from trimaran.architectures import MACHINES
from trimaran.cluster import job_fabric, lsf, pbs, slurm
from trimaran.cluster.job_fabric import JobFabric
from trimaran.cluster.scheduler import NODES, TASKS, Scheduler, Shape
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.errors import UsageError
from trimaran.launch import apptainer
from trimaran.launch.apptainer import given
from trimaran.launch.specification import (
    CommandLine,
    IfSet,
    LaunchSpec,
    Mount,
    Node,
    Text,
    Variable,
    Word,
    join,
    quote,
    shell_source,
)
from trimaran.recipes import cards, targets
from trimaran.recipes.recipe import Recipe
from trimaran.run import inputs, job_chain, node_scripts, pipeline
from trimaran.run.launch_spec import Places
from trimaran.run.record import DataRecord
from trimaran.run.request import Request
from trimaran.run.resume import OPTION
from trimaran.run.site_settings import SiteSettings
from trimaran.site_file import Cluster

SCRIPT, FUNCTIONS = job_chain.SCRIPT, job_chain.FUNCTIONS
SCHEDULERS: Mapping[str, Scheduler] = {
    system.name: system for system in (slurm.Slurm(), pbs.Pbs(), lsf.Lsf())
}
"""Name of a batch system in the site file -> batch system."""

WIDTH = 100
"""Maximum width of a script's lines in characters; only a single long word may exceed it."""

TOGETHER_STARTER = ("setsid",)
"""Prefix of the command of each training in a job that several trainings share (several.sh)."""

PLANNED = "ranks"
"""Name of an elastic app's option for the planned number of ranks; some may be lost later."""


@dataclass(frozen=True)
class Job:
    """All inputs of the script of a job.

    Attributes:
        request: recipe, changes and site file.
        cluster: the cluster in the site file.
        built: the image, on a file system that all nodes share.
        data: the packed data sets.
        directory: the run directory.
        together: name of the job that several trainings share; None: this run has its own job.
        before: directory of the run that writes the initial checkpoint; None: no run has to write
            it.
        following: (directory of the next run, checkpoint of this run from which the next run
            starts). The next run is queued when this run has completed. None: no run follows.
    """

    request: Request
    cluster: Cluster
    built: BuiltImage
    data: list[DataRecord]
    directory: Path
    together: str | None = None
    before: Path | None = None
    following: tuple[Path, Path] | None = None

    @property
    def engine(self) -> Apptainer:
        """The engine, which is always Apptainer for jobs."""
        assert isinstance(self.request.engine, Apptainer)  # noqa: S101 - for the type checker
        return self.request.engine

    @property
    def recipe(self) -> Recipe:
        """The recipe of the run that the job starts."""
        return self.request.recipe.recipe

    @property
    def scheduler(self) -> Scheduler:
        """The batch system."""
        return SCHEDULERS[self.cluster.scheduler]

    @property
    def shape(self) -> Shape:
        """The nodes, tasks and resources of the job."""
        return Shape.of(self.recipe, targets.load(self.recipe.target).node.sockets)

    @property
    def name(self) -> str:
        """The name of the job: the recipe, and a hash of the run directory to identify the run."""
        place = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:10]
        return self.scheduler.called(f"{self.request.recipe.name}-{place}")

    @property
    def meets(self) -> bool:
        """Whether torchrun agents of several nodes need a rendezvous."""
        return self.recipe.launcher == "torchrun" and self.shape.nodes > 1

    @property
    def folders(self) -> dict[str, Path]:
        """The folders of the data sets, by name."""
        return {one.name: Path(one.path) for one in self.data}

    def launch(self) -> LaunchSpec:
        """Return the launch specification that `run.json` records."""
        places = Places(inputs.mounts(self.recipe, self.folders), str(self.directory), self.first)
        return self.started(self.task(self.engine.node(self.built), places))

    def started(self, task: LaunchSpec) -> LaunchSpec:
        """Return the launch specification `task` with the site file's settings and a task starter.

        The task starter is the command that starts all tasks of the job, such as srun.
        """
        starts = TOGETHER_STARTER if self.together else self.scheduler.ranks(
            self.shape, self.cluster, str(self.shape.nodes), str(self.shape.tasks)
        )
        facts = self.site_settings()
        return replace(task, task_starter=starts, site_options=tuple(facts.flags),
                       site_environment=facts.env)

    def site_settings(self) -> SiteSettings:
        """Return the settings of the site file, including those of the cluster."""
        env = {name: value for name, value in {**self.profile.env, **self.cluster.env}.items()
               if name not in self.recipe.env}  # variables of the recipe take precedence
        return pipeline.site_settings(self.request).model_copy(update={
            "flags": list(self.cluster.flags), "env": env,
            "devices": [*self.profile.devices, *self.cluster.devices],
            "fabric": self.profile.name,
            "libraries": [one.name for one in self.profile.libraries],
        })

    @property
    def profile(self) -> JobFabric:
        """The settings that the profile of the cluster's fabric adds to the job."""
        return job_fabric.of(self.cluster, self.built.name, nodes=self.shape.nodes)

    @property
    def first(self) -> list[Mount]:
        """The mount of the checkpoint that the run starts from, if there is one."""
        return inputs.initial_mounts(self.request.initial)

    def task(self, node: Node, places: Places) -> LaunchSpec:
        """Return the launch specification of one task, without the settings of the cluster."""
        spec = pipeline.specify(self.request, self.built, node, places)
        # torchrun identifies its agents by the host's name and the host's process number.
        return replace(spec, shared_node=self.shape.tasks_per_node > 1 or self.meets)


def check(job: Job) -> None:
    """Check that the recipe can be a job of this cluster.

    Raises:
        UsageError: the time limit is too short, the batch system cannot start the Multi-Process
            Service, or the recipe sets `min_nodes` although the app cannot continue on fewer nodes.
    """
    recipe, wanted = job.recipe, job.recipe.resources
    early = job.scheduler.early(job.cluster)
    if early >= seconds(wanted.walltime):
        raise UsageError(
            f"signal_seconds of the cluster in the site file: a job is warned {early} s before its"
            f" time limit, but the recipe's walltime is only {wanted.walltime}",
            code="walltime-too-short",
            hint="reduce signal_seconds, or increase resources.walltime",
        )
    if wanted.mps and job.scheduler.name != "slurm":
        raise UsageError(f"mps: a job of {job.scheduler.title} cannot start NVIDIA's Multi-Process"
                         " Service", code="scheduler-unsupported",
                         hint="use a cluster with Slurm; LSF itself starts the service with"
                         " `bsub -alloc_flags gpumps`")
    if wanted.min_nodes is None:
        return
    for name, value in (("resume", "auto"), (PLANNED, 2)):
        if fault := cards.argument_faults(recipe.app, recipe.verb, {name: value}).get(name):
            raise UsageError(f"min_nodes: {recipe.app} {recipe.verb} is not elastic: {fault}",
                             code="app-not-elastic", hint="leave min_nodes out of the recipe")


def render(job: Job) -> str:
    """Return the text of the script of `job`.

    Raises:
        UsageError: an argument, a path or a variable has control characters, or the batch
            system does not support a setting.
    """
    check(job)
    recipe, cluster, shape, scheduler = job.recipe, job.cluster, job.shape, job.scheduler
    line = _command(job)
    elastic = recipe.resources.min_nodes is not None
    by_srun = scheduler.name == "slurm" and shape.ranks_told and not shape.mpirun
    unknown = cards.argument_faults(recipe.app, recipe.verb, {"resume": "auto"}).get("resume")
    alone = elastic and not shape.restarts  # the script itself continues without lost nodes
    following = job.following or ()
    return fill(scheduler, cluster, shape, job.name, job.directory, elastic=elastic, **{
        "recipe": job.request.recipe.name,
        "image": quote(job.built.reference),
        "image_machine": MACHINES[job.request.image.architecture],
        "hex": (job.built.digest or "unknown-until-it-is-built").removeprefix("sha256:"),
        "data": [
            (f"data{number}", quote(one.path), _digest(one))
            for number, one in enumerate(job.data, 1)
        ],
        "apptainer": quote(cluster.apptainer or job.engine.executable),
        "gpu_device": node_scripts.gpu_device(job.built.name),
        "srun_mpi": quote(cluster.mpi) if by_srun else "",
        "network": _lines([
            quote(f"{name}={value}") for name, value in given(cluster.env).items()
        ]),
        "fabric": job.profile.assignments(overridden={*cluster.env, *recipe.env}),
        "rendezvous": job.meets,
        "resume": "" if unknown else OPTION,
        "min_nodes": recipe.resources.min_nodes if alone else "",
        "all_ranks": (
            f"--{PLANNED}={shape.nodes * recipe.resources.tasks_per_node}" if elastic else ""
        ),
        "mps": recipe.resources.mps or "",
        "initial": quote(job.request.initial) if job.before and job.request.initial else "",
        "next_run": quote(following[0]) if following else "",
        "next_initial": quote(following[1]) if following else "",
        "environment": _lines(node_scripts.assignments(line.environment)),
        "words": _lines(line.shell_words()),
    })


def fill(
    scheduler: Scheduler, cluster: Cluster, shape: Shape, name: str, directory: Path, *,
    elastic: bool = False, **own: object,
) -> str:
    """Return the text of a job script.

    Args:
        scheduler: the batch system.
        cluster: the cluster in the site file.
        shape: the nodes, tasks and resources of the job.
        name: name of the job.
        directory: the folder in which the script works.
        elastic: whether the job continues after the loss of a node.
        own: additional values for the template; without them, the script uses no image and no data.
    """
    starts, each = scheduler.ranks(shape, cluster, NODES, TASKS), scheduler.each_node(NODES)
    alone = elastic and not shape.restarts
    return node_scripts.fill("trimaran.cluster", "job.sh.j2", {
        **dict.fromkeys(EMPTY, ""),
        "version": __version__,
        "scheduler": scheduler,
        "options": scheduler.options(name, shape, cluster, elastic),
        "shape": shape,
        "commands": quote(scheduler.folder()),
        "out": quote(directory),
        "functions_sha256": hashlib.sha256(functions().encode()).hexdigest(),
        "modules": [quote(module) for module in cluster.modules],
        "local": quote(cluster.local_storage) if cluster.local_storage else "",
        "stage_data": cluster.stage_data,
        "kept_caches": quote(cluster.compiler_caches) if cluster.compiler_caches else "",
        "devices": quote(" ".join(cluster.devices)) if cluster.devices else "",
        "timer": seconds(shape.walltime) - cluster.signal_seconds if scheduler.silent else "",
        "starter": starts[0],
        "ranks": _launch(starts, elastic=alone),
        "each_node": _launch(each, elastic=alone, beside=bool(own.get("mps"))),
        **own,
    })


EMPTY = ("image", "image_machine", "hex", "data", "apptainer", "gpu_device", "srun_mpi", "network",
         "rendezvous", "resume", "min_nodes", "all_ranks", "mps", "fabric", "initial", "next_run",
         "next_initial", "trainings", "environment", "words")
"""Variables of the template that are empty unless the caller of `fill` gives a value."""


@cache
def functions() -> str:
    """Return the text of the job's `functions.sh`, which every job script sources."""
    own = [Path(__file__).with_name(name).read_text(encoding="utf-8")
           for name in ("functions.sh", "several.sh")]
    return "".join(own) + node_scripts.functions()


def _command(job: Job) -> CommandLine:
    """Return the command of a task.

    With `stage_data` in the site file, the task reads copies of the data on its node.
    """
    mounts = inputs.mounts(job.recipe, job.folders)
    if job.cluster.stage_data:
        mounts = {
            name: replace(mount, source=Variable(f"data{number}"))
            for number, (name, mount) in enumerate(mounts.items(), 1)
        }
    places = Places(mounts, str(job.directory), job.first)
    task = job.task(node_scripts.node(job.built.name), places)
    # The script itself sets the variables of the site file.
    return apptainer.render(replace(task, site_options=tuple(job.cluster.flags)))


def _digest(data: DataRecord) -> str | None:
    """Return the SHA-256 of `dataset.json` in the folder of `data`; None for a SquashFS image."""
    return None if Path(data.path).is_file() else data.sha256


def _launch(words: tuple[Text, ...], *, elastic: bool = False, beside: bool = False) -> str:
    more: list[Word] = []
    if elastic:  # Slurm frees a step's resources on a lost node only after a long time
        more = ["--overlap", IfSet("lost", join("--exclude=", Variable("lost")))]
    elif beside:  # a service shares the nodes with the ranks
        more = [IfSet("beside", "--overlap")]
    return " ".join(map(shell_source, (words[0], *more, *words[1:])))


def _lines(words: Iterable[str]) -> list[str]:
    """Return `words`, joined into lines of at most WIDTH characters.

    A word that is longer than WIDTH characters gets its own line.
    """
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def seconds(walltime: str) -> int:
    """Return the seconds of a time limit in the form HH:MM:SS."""
    hours, minutes, seconds = (int(part) for part in walltime.split(":"))
    return (hours * 60 + minutes) * 60 + seconds
