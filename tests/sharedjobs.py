"""Create run directories of trainings that share one job, with stand-ins for Apptainer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from jobplaces import Place, make, shaped
from trimaran.cluster import several, submission, together
from trimaran.cluster.several import TOGETHER, Runs
from trimaran.run.record import ImageRecord
from trimaran.site_file import Cluster

JOB = "7"
"""Number of the shared job, where no real batch system assigns one."""


def share(
    root: Path, count: int, cluster: Cluster, gpus: int = 0, job: str | None = JOB
) -> tuple[Place, list[Path]]:
    """Create a job that `count` trainings share; return its `Place`, and their run directories."""
    place = make(root, cluster=cluster)
    one = shaped(place.job, "none", nodes=1, gpus_per_task=gpus)
    folder = place.root / "four $(touch owned)"
    name = together.job_name(folder, one.scheduler)
    members = [
        replace(one, directory=folder / f"{number}-x y", together=name)
        for number in range(1, count + 1)
    ]
    for member in members:
        submission.write(member, used(place), "test")
    runs = [member.directory for member in members]
    text = together.render(members, folder)
    listed = Runs(runs=[run.name for run in runs], **submission.digests(text))
    several.write(folder, TOGETHER, listed)
    submission.write_script(folder, text)
    if job is not None:
        for each in (folder, *runs):
            (each / "job/ids").write_text(f"{job}\n")
    return Place(place.root, replace(place.job, directory=folder)), runs


def used(place: Place) -> ImageRecord:
    """Return the record of the job's image, as `run.json` contains it."""
    built = place.job.built
    return ImageRecord(name=built.name, engine=built.engine, reference=built.reference,
                       digest=built.digest, inputs=built.inputs)
