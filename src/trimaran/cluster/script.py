"""The script of a job: resources, checks on every node, the ranks, and what follows their end."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from trimaran import __version__
from trimaran.cluster import lsf, pbs, slurm
from trimaran.cluster.scheduler import NODES, TASKS, Scheduler, Shape
from trimaran.engines import BuiltImage, Command, commands
from trimaran.engines.apptainer import Apptainer, beside_others, csv_line, given
from trimaran.errors import UsageError
from trimaran.hostfacts import HostFacts
from trimaran.recipes import options, targets
from trimaran.recipes.recipe import Recipe
from trimaran.runs import links, pipeline, shell
from trimaran.runs.pipeline import Request
from trimaran.runs.record import DataRecord
from trimaran.runs.resume import OPTION
from trimaran.runs.sitefacts import SiteFacts
from trimaran.sites import Cluster

SCRIPT = links.SCRIPT
SCHEDULERS: Mapping[str, Scheduler] = {
    one.name: one for one in (slurm.Slurm(), pbs.Pbs(), lsf.Lsf())
}
"""The batch systems, by their names in a site file."""

FABRICS: Mapping[str, tuple[str, ...]] = {
    "/sys/class/infiniband": ("/dev/infiniband", "/dev/hfi1*"),
    "/sys/class/cxi": ("/dev/cxi*",),
}
"""Where Linux lists the cards of a fast network (InfiniBand, RoCE and Omni-Path; Slingshot), with
the devices that its libraries open."""

PLANNED = "ranks"
"""The option by which an app shares the work of lost ranks (app contract)."""


@dataclass(frozen=True)
class Job:
    """What a script is made for.

    Attributes:
        request: recipe, changes and site.
        cluster: the facts of the cluster.
        built: the image, on a file system that the nodes share.
        data: the packed data sets.
        directory: the run directory.
    """

    request: Request
    cluster: Cluster
    built: BuiltImage
    data: list[DataRecord]
    directory: Path

    @property
    def engine(self) -> Apptainer:
        """The engine, which the nodes have: `trimaran submit` makes no other."""
        assert isinstance(self.request.engine, Apptainer)  # noqa: S101 - for the types
        return self.request.engine

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.request.recipe.recipe

    @property
    def scheduler(self) -> Scheduler:
        """The batch system."""
        return SCHEDULERS[self.cluster.scheduler]

    @property
    def shape(self) -> Shape:
        """What the batch system starts."""
        return Shape.of(self.recipe, targets.load(self.recipe.target).node.sockets)

    @property
    def name(self) -> str:
        """What its jobs are called: by the recipe, for people, and by the run directory."""
        place = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:10]
        return self.scheduler.called(f"{self.request.recipe.name}-{place}")

    @property
    def meets(self) -> bool:
        """Whether agents of torchrun on several nodes meet."""
        return self.recipe.launcher == "torchrun" and self.shape.nodes > 1

    @property
    def folders(self) -> dict[str, Path]:
        """Where the data sets are, by name."""
        return {one.name: Path(one.path) for one in self.data}

    def command(self) -> Command:
        """Return the exact command, as `run.json` has it."""
        shape, facts = self.shape, self.site_facts()
        starts = self.scheduler.ranks(shape, self.cluster, str(shape.nodes), str(shape.tasks))
        line = self.task(self.engine, self.built)
        at = line.argv.index("--pwd")
        return Command(
            (*starts, *line.argv[:at], *facts.flags, *line.argv[at:]),
            {**given(facts.env), **line.env},
        )

    def site_facts(self) -> SiteFacts:
        """Return what the site file adds, its cluster's entry included."""
        env = {name: value for name, value in self.cluster.env.items()
               if name not in self.recipe.env}  # the recipe's come later, and win
        return pipeline.site_facts(self.request).model_copy(update={
            "flags": list(self.cluster.flags), "env": env,
            "devices": list(self.cluster.devices),
        })

    def task(self, engine: Apptainer, built: BuiltImage) -> Command:
        """Return the command of one task, by an engine and an image that may be stand-ins."""
        line = pipeline.command(
            replace(self.request, engine=engine), built, self.folders, self.directory
        )
        # torchrun tells its agents apart by host name and process number: those of the host.
        if self.shape.tasks_per_node == 1 and not self.meets:
            return line
        return Command(beside_others(line.argv), line.env)


def check(job: Job) -> None:
    """Raise UsageError for a recipe that cannot be a job of this cluster."""
    recipe, wanted = job.recipe, job.recipe.resources
    early = job.scheduler.early(job.cluster)
    if early >= _seconds(wanted.walltime):
        raise UsageError(
            f"signal_seconds of the cluster in the site file: a job is told {early} s before its"
            f" time limit, and the recipe's walltime is {wanted.walltime}",
            hint="fewer signal_seconds, or a longer resources.walltime",
        )
    if wanted.mps and job.scheduler.name != "slurm":
        raise UsageError(f"mps: a job of {job.scheduler.title} does not start NVIDIA's service",
                         hint="LSF has a flag of its own for it: bsub -alloc_flags gpumps")
    if wanted.min_nodes is None:
        return
    for name, value in (("resume", "auto"), (PLANNED, 2)):
        if fault := options.faults(recipe.app, recipe.verb, {name: value}).get(name):
            raise UsageError(f"min_nodes: {recipe.app} {recipe.verb} is not elastic: {fault}")


def render(job: Job) -> str:
    """Return the text of the script.

    Raises:
        UsageError: an argument, a path or a variable has control characters, or the batch
            system has no word for what is asked.
    """
    check(job)
    recipe, cluster, shape, scheduler = job.recipe, job.cluster, job.shape, job.scheduler
    words, environment = _command(job)
    elastic = recipe.resources.min_nodes is not None
    by_srun = scheduler.name == "slurm" and shape.ranks_told and not shape.mpirun
    unknown = options.faults(recipe.app, recipe.verb, {"resume": "auto"}).get("resume")
    starts = scheduler.ranks(shape, cluster, NODES, TASKS)
    each = scheduler.each_node(NODES)
    return shell.fill("trimaran.cluster", "job.sh.j2", {
        "script": "job.sh",
        "version": __version__,
        "recipe": job.request.recipe.name,
        "scheduler": scheduler,
        "options": scheduler.options(job.name, shape, cluster, elastic),
        "shape": shape,
        "commands": shell.quote(scheduler.folder()),
        "out": shell.quote(job.directory),
        "image": shell.quote(job.built.reference),
        "hex": (job.built.digest or "unknown-until-it-is-built").removeprefix("sha256:"),
        "data": [
            (f"data{number}", shell.quote(one.path), _digest(one))
            for number, one in enumerate(job.data, 1)
        ],
        "modules": [shell.quote(name) for name in cluster.modules],
        "loads": bool(cluster.modules) and "mpirun" in (starts[0], each[0]),
        "apptainer": shell.quote(cluster.apptainer or job.engine.executable),
        "local": cluster.local_storage and shell.quote(cluster.local_storage),
        "stage_data": cluster.stage_data,
        "check_mpi": cluster.mpi if by_srun else None,
        "network": [
            shell.quote(f"{name}={value}") for name, value in given(cluster.env).items()
        ],
        "passed_on": commands.PASSED_ON,
        # Unquoted, so that the shell of each node expands `*`: their form allows nothing else.
        "fabrics": {place: " ".join(devices) for place, devices in FABRICS.items()},
        "devices": " ".join(dict.fromkeys([*chain(*FABRICS.values()), *cluster.devices])),
        "named_devices": cluster.devices,
        "rendezvous": job.meets,
        "resume": None if unknown else OPTION,
        "elastic": recipe.resources.min_nodes if elastic and not shape.restarts else None,
        "planned": f"--{PLANNED}={shape.nodes * recipe.resources.tasks_per_node}",
        "timer": _seconds(shape.walltime) - cluster.signal_seconds if scheduler.silent else None,
        "mps": recipe.resources.mps,
        "warn": scheduler.warn(shape),
        "numbers": [shell.quote(line.replace("(?:", "(")) for line in scheduler.queued],  # for sed
        "ranks": _launch(starts, elastic=elastic and not shape.restarts),
        "each_node": _launch(each, elastic=elastic and not shape.restarts),
        "each_node_beside": _launch((each[0], "--overlap", *each[1:])),
        "environment": environment,
        "words": words,
        "facts": [name for name in HostFacts.model_fields if name != "python"],
        **shell.values(job.built.name),
    })


def _command(job: Job) -> tuple[list[str], list[str]]:
    """Return the words of a rank's command and of its environment, as shell source."""
    staged = {
        f"{csv_line([f'source={one.path}'])},": f"data{number}_field"
        for number, one in enumerate(job.data, 1) if job.cluster.stage_data
    }
    return shell.command(job.built, job.task, staged, flags=job.cluster.flags)


def _digest(data: DataRecord) -> str | None:
    """Return what a folder's `dataset.json` must hash to; an image of one is not looked into."""
    return None if Path(data.path).is_file() else data.sha256


def _launch(words: tuple[str, ...], *, elastic: bool = False) -> str:
    """Return the words of a launcher as shell source: quoted, but for the script's variables."""
    source = [_word(word) for word in words]
    if elastic:  # what a step of a lost node had counts as taken for long
        source[1:1] = ["--overlap", '${lost:+"--exclude=$lost"}']
    return " ".join(source)


def _word(word: str) -> str:
    name, equals, value = word.partition("=")
    if word in (NODES, TASKS):
        return word
    return f"{name}={value}" if equals and value in (NODES, TASKS) else shell.quote(word)


def _seconds(walltime: str) -> int:
    hours, minutes, seconds = (int(part) for part in walltime.split(":"))
    return (hours * 60 + minutes) * 60 + seconds
