"""Generate the content of the golden files, and define their paths.

`scripts/golden.py` writes the files; the tests compare the committed files with the same content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.testing import CliRunner

from jobplaces import describe, shaped
from shards.kinds import ImageFormat
from trimaran import cli, paths
from trimaran.bundles import runscript
from trimaran.cluster import docker, script, together
from trimaran.cluster.scheduler import Scheduler
from trimaran.data.packing import class_folders, packer
from trimaran.data.packing.plan import Options
from trimaran.engines import store
from trimaran.engines.apptainer import Apptainer
from trimaran.recipes import library
from trimaran.recipes.cards import Argument
from trimaran.reporting import Silent
from trimaran.run.record import GitRecord
from trimaran.run.request import Request
from trimaran.site_file import Cluster, FabricName, Site

FOLDER = Path(__file__).parent / "golden"
TINY = Path(__file__).parent / "images/tiny/image.yaml"
"""Path of the definition of a small image; the golden files rendered from it are beside it."""

DATA = paths.repository() / "apps/resnet-imagenet/tests/data"
SHARDS = DATA / "packed"
FORMATS: tuple[ImageFormat, ...] = get_args(ImageFormat)

BUNDLED, ON_DOCKER = "resnet-imagenet/cpu-quickstart", "resnet-imagenet/gtx1080ti-x4-scaling@4"
"""The recipes from which the golden files `run.sh` (a bundle) and `docker.sh` are generated."""

SLURM = Cluster(
    partition="main", account="project-1", qos="normal", constraint="ib&avx512",
    modules=("apptainer/1.4",), env={"NCCL_SOCKET_IFNAME": "ib0"}, signal_seconds=60,
    local_storage=Path("/local/scratch"),
)
PBS = Cluster(
    scheduler="pbs", partition="workq", account="project-1", constraint="cpu_type=skl",
    data=Path("/project/data"), scratch=Path("/scratch"), signal_seconds=60,
)
LSF = Cluster(scheduler="lsf", partition="batch", account="ABC123", signal_seconds=90)
JOBS = {"job.sh": SLURM, "job-pbs.sh": PBS, "job-lsf.sh": LSF}
"""Golden file with a job script -> site settings for the script, such as the batch system."""

TOGETHER = {"together.sh": SLURM, "together-pbs.sh": PBS, "together-lsf.sh": LSF}
"""Golden file with the script of one job for four trainings -> site settings for the script."""

CHAINED = {"chained.sh": SLURM, "chained-pbs.sh": PBS, "chained-lsf.sh": LSF}
"""Golden file with the job script of the second of three runs in a chain -> site settings.

The second run starts from a checkpoint of the first, and the third from one of the second.
"""


def commands() -> list[list[str]]:
    """Return the words of all commands: `[]`, `["run"]`, `["data", "get"]`, …"""
    words: list[list[str]] = [[]]
    for info in cli.app.registered_commands:
        words.append([str(info.name or info.callback.__name__)])  # type: ignore[union-attr]
    for group in cli.app.registered_groups:
        words.append([str(group.name)])
        for info in group.typer_instance.registered_commands:  # type: ignore[union-attr]
            words.append([str(group.name), str(info.name)])
    return words


def help_of(words: list[str]) -> str:
    """Return the output of `trimaran WORDS --help` on a terminal of 80 columns."""
    done = CliRunner().invoke(
        cli.app, [*words, "--help"], prog_name="trimaran", env={"COLUMNS": "80", "TERM": "dumb"}
    )
    assert done.exit_code == 0, done.output
    return done.output


def help_text() -> str:
    """Return the help of all commands."""
    return "\n".join(f"$ trimaran {' '.join([*w, '--help'])}\n{help_of(w)}" for w in commands())


def bundle(changes: dict[str, Argument], included: bool = False) -> runscript.Contents:
    """Return the content of the `run.sh` of the quickstart, with fixed digests."""
    recipe = library.load(BUNDLED)
    recipe = replace(recipe, sha256="1" * 64, card=replace(recipe.card, sha256="6" * 64))
    built = store.Record(
        recipe.recipe.image.name, "apptainer", "/i.sif", "sha256:" + "2" * 64, "3" * 64, 1,
        content="7" * 64, built="2026-11-28T00:00:00Z", base_name="debian",
        base_digest="sha256:" + "8" * 64, architecture="amd64",
    )
    git = GitRecord(revision="5" * 40, dirty=False)
    return runscript.Contents(recipe, changes, built, None,
                              dict.fromkeys(recipe.recipe.data, "4" * 64), included, git)


def described(cluster: Cluster, image: str | None = None) -> script.Job:
    """Return a job for an example site; `image` replaces the name of the recipe's image."""
    job = describe(Path("/example"), "runs/1", {"note": "a b"}, cluster)
    return replace(job, built=replace(job.built, name=image or job.built.name))


def job_script(
    cluster: Cluster, launcher: str = "srun", image: str | None = None, **resources: object
) -> str:
    """Return the script of a job for an example site, with the given launcher and resources."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Scheduler, "folder", lambda _: Path("/opt/batch/bin"))
        return script.render(shaped(described(cluster, image), launcher, **resources))


FABRICS: dict[str, tuple[FabricName, str]] = {
    "InfiniBand, NVIDIA": ("infiniband", "torch-cuda13"),
    "Slingshot, NVIDIA (GH200)": ("slingshot", "torch-cuda13"),
    "Slingshot, AMD (LUMI)": ("slingshot", "torch-rocm"),
    "Omni-Path, CPU": ("omnipath", "torch-cpu"),
    "EFA, NVIDIA": ("efa", "torch-cuda13"),
    "Ethernet, CPU": ("ethernet", "torch-cpu"),
}
"""Title in the golden file -> name of the fabric (network), and name of an image."""


def fabric_lines(cluster: Cluster, fabric: FabricName, image: str) -> list[str]:
    """Return the lines that a fabric adds to the script of a job."""
    plain, added = (
        job_script(cluster.model_copy(update={"fabric": name}), image=image).splitlines()
        for name in (None, fabric)
    )
    rest = [line for line in added if line not in plain]
    assert [line for line in added if line in plain] == plain
    return rest


def fabrics_text() -> str:
    """Return the lines that each fabric adds to a job script, and the settings in `run.json`."""
    parts = []
    for title, (fabric, image) in FABRICS.items():
        plain = SLURM.model_copy(update={"env": {}})
        job = described(plain.model_copy(update={"fabric": fabric}), image)
        site = job.site_settings().model_dump_json(exclude={"flags", "binds"}, indent=2)
        parts.append("\n".join([f"# {title}", *fabric_lines(plain, fabric, image), site, ""]))
    return "\n".join(parts)


def together_script(cluster: Cluster) -> str:
    """Return the script of a job of four trainings with a GPU each, for an example site."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Scheduler, "folder", lambda _: Path("/opt/batch/bin"))
        jobs = [
            shaped(describe(Path("/example"), f"runs/four/{number}-a b", {}, cluster), "none",
                   nodes=1, gpus_per_task=1, cpus_per_task=8)
            for number in range(1, 5)
        ]
        return together.render(jobs, Path("/example/runs/four"))


def chained_script(cluster: Cluster) -> str:
    """Return the job script of the second run of a chain: each run starts from the previous one."""
    first, second, third = (Path("/example/runs/chain") / name for name in ("1-a", "2-b", "3-c"))
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(Scheduler, "folder", lambda _: Path("/opt/batch/bin"))
        job = describe(Path("/example"), "runs/chain/2-b", {}, cluster)
        initial = first / "checkpoints/step-00000500.npz"
        request = replace(job.request, initial=initial, to_come=True)
        following = (third, second / "checkpoints/step-00000750.npz")
        return script.render(replace(job, request=request, before=first, following=following))


def docker_script(recipe: str, **more: Any) -> str:
    """Return the script for Docker of a recipe, with an example registry.

    Args:
        recipe: name of the recipe.
        more: attributes of the `Request` that is rendered, if they differ from the example's.
    """
    file = library.load(recipe)
    request = Request(
        recipe=file, engine=Apptainer("apptainer"), changes=more.pop("changes", {}),
        folders={name: Path("/project/data") / name for name in file.recipe.data},
        out=Path("/scratch/runs/20261124-120000"),
        site=Site(registry="registry.example.org/hpc"), queued=True,
    )
    return docker.render(replace(request, **more), Cluster())


TEXTS: dict[str, Callable[[], str]] = {
    "help.txt": help_text,
    "run.sh": lambda: runscript.render(bundle({})),
    "docker.sh": lambda: docker_script(ON_DOCKER),
    "fabrics.txt": fabrics_text,
    **{name: lambda cluster=cluster: job_script(cluster) for name, cluster in JOBS.items()},
    **{name: lambda cluster=cluster: together_script(cluster)
       for name, cluster in TOGETHER.items()},
    **{name: lambda cluster=cluster: chained_script(cluster) for name, cluster in CHAINED.items()},
}
"""Golden file in `FOLDER` -> function that returns its content."""


def pack(form: ImageFormat, out: Path) -> None:
    """Pack the test photos of the app resnet-imagenet into the folder `out`, in one format."""
    listing = class_folders.listing(DATA / "photos", 1, Silent())
    packer.pack(
        listing, out, Options("photos", form, samples=4), workers=1, skip_bad=False,
        reporter=Silent(),
    )
