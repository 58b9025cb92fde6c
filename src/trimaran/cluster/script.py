"""The script of a job: resources, checks on every node, the ranks, and what follows their end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran import __version__
from trimaran.cluster import slurm
from trimaran.engines import BuiltImage, Command, commands
from trimaran.engines.apptainer import Apptainer
from trimaran.hostfacts import HostFacts
from trimaran.recipes import options
from trimaran.recipes.recipe import Recipe
from trimaran.runs import links, pipeline, shell
from trimaran.runs.pipeline import Request
from trimaran.runs.record import DataRecord
from trimaran.runs.resume import OPTION
from trimaran.sites import Cluster

SCRIPT = f"{links.FOLDER}/job.sh"


@dataclass(frozen=True)
class Shape:
    """What Slurm starts: an image's own torchrun or mpirun starts the ranks of its one task."""

    nodes: int
    tasks_per_node: int
    cpus_per_task: int
    gpus_per_node: int
    walltime: str

    @classmethod
    def of(cls, recipe: Recipe) -> Shape:
        """Return the shape of a recipe's job."""
        wanted = recipe.resources
        inside = 1 if recipe.launcher == "srun" else wanted.tasks_per_node
        return cls(
            wanted.nodes, wanted.tasks_per_node // inside, wanted.cpus_per_task * inside,
            wanted.gpus_per_task * wanted.tasks_per_node, wanted.walltime,
        )


@dataclass(frozen=True)
class Job:
    """What a script is made for.

    Attributes:
        request: recipe, changes and site.
        engine: Apptainer, which the nodes have.
        cluster: the facts of the cluster.
        built: the image, on a file system that the nodes share.
        data: the packed data sets.
        directory: the run directory.
    """

    request: Request
    engine: Apptainer
    cluster: Cluster
    built: BuiltImage
    data: list[DataRecord]
    directory: Path

    @property
    def recipe(self) -> Recipe:
        """The recipe."""
        return self.request.recipe.recipe

    @property
    def folders(self) -> dict[str, Path]:
        """Where the data sets are, by name."""
        return {one.name: Path(one.path) for one in self.data}

    def launch(self) -> tuple[str, ...]:
        """Return the words that start the tasks."""
        shape = Shape.of(self.recipe)
        return (
            "srun", "--export=ALL", f"--nodes={shape.nodes}",
            f"--ntasks={shape.nodes * shape.tasks_per_node}",
            f"--ntasks-per-node={shape.tasks_per_node}",
            f"--cpus-per-task={shape.cpus_per_task}", "--kill-on-bad-exit=1",
            f"--mpi={self.cluster.mpi if self.recipe.launcher == 'srun' else 'none'}",
        )

    def command(self) -> Command:
        """Return the exact command, as `run.json` has it."""
        line = pipeline.command(self.request, self.built, self.folders, self.directory)
        return Command((*self.launch(), *line.argv), line.env)


def options_of(job: Job) -> list[str]:
    """Return what `#SBATCH` lines say: the recipe's resources and the site's names."""
    shape, cluster = Shape.of(job.recipe), job.cluster
    named = {"partition": cluster.partition, "account": cluster.account, "qos": cluster.qos,
             "constraint": cluster.constraint}
    return [
        f"--job-name={job.request.recipe.name}",
        f"--nodes={shape.nodes}", f"--ntasks-per-node={shape.tasks_per_node}",
        f"--cpus-per-task={shape.cpus_per_task}", f"--time={shape.walltime}",
        *([f"--gres={cluster.gres}:{shape.gpus_per_node}"] if shape.gpus_per_node else []),
        *(f"--{name}={value}" for name, value in named.items() if value is not None),
        f"--output={links.FOLDER}/slurm-%j.txt", "--open-mode=append",
        f"--signal=B:USR1@{cluster.signal_seconds}", "--requeue", "--export=NONE",
    ]


def render(job: Job) -> str:
    """Return the text of the script.

    Raises:
        UsageError: an argument, a path or a variable has control characters.
    """
    words, environment = shell.command(
        job.built,
        lambda engine, image: pipeline.command(
            replace(job.request, engine=engine), image, job.folders, job.directory
        ),
        {},
    )
    recipe = job.recipe
    unknown = options.faults(recipe.app, recipe.verb, {"resume": "auto"}).get("resume")
    return shell.fill("trimaran.cluster", "job.sh.j2", {
        "script": "job.sh",
        "version": __version__,
        "recipe": job.request.recipe.name,
        "options": options_of(job),
        "shape": Shape.of(recipe),
        "commands": shlex.quote(str(slurm.folder())),
        "out": shlex.quote(str(job.directory)),
        "image": shlex.quote(job.built.reference),
        "digest": job.built.digest or "sha256:unknown-until-it-is-built",
        "data": [
            (shlex.quote(one.path), None if Path(one.path).is_file() else one.sha256)
            for one in job.data
        ],
        "modules": [shlex.quote(name) for name in job.cluster.modules],
        "apptainer": shlex.quote(str(job.cluster.apptainer or job.engine.executable)),
        "local": job.cluster.local_storage and shlex.quote(str(job.cluster.local_storage)),
        "mpi": None if recipe.launcher != "srun" else job.cluster.mpi,
        "network": _assignments(job.cluster.env),
        "passed_on": commands.PASSED_ON,
        "resume": None if unknown else OPTION,
        "launch": shlex.join(job.launch()),
        "environment": environment,
        "words": words,
        "facts": [name for name in HostFacts.model_fields if name != "python"],
        **shell.values(job.built.name),
    })


def _assignments(env: Mapping[str, str]) -> list[str]:
    return [shlex.quote(f"APPTAINERENV_{name}={value}") for name, value in env.items()]
