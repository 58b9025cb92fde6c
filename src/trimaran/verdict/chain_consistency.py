"""Check whether the links of a job chain agree with the run: jobs, nodes, steps and script."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from trimaran.errors import UsageError
from trimaran.files import read_plain
from trimaran.recipes.recipe import Recipe
from trimaran.run import job_chain
from trimaran.run.job_chain import Link
from trimaran.run.record import JobRecord, RunRecord
from trimaran.run.run_directory import METRICS, RESULT


def faults(
    directory: Path, record: RunRecord, recipe: Recipe, last_step: int | None
) -> Iterator[str]:
    """Yield the disagreements between the files of a submitted run that has completed.

    Args:
        directory: the run directory.
        record: content of `run.json`, combined with the links.
        recipe: the recipe, with the requested number of nodes.
        last_step: last step in the metrics; None: they have no step.
    """
    if record.job is not None:
        yield from _script(directory, record.job)
    links = job_chain.read(directory)
    if not links:
        yield f"run.json: the status is {record.status}, but {job_chain.FOLDER} has no link"
        return
    queued = {_sequence(number) for number in job_chain.numbers(directory)}
    for link in links:
        name = f"{job_chain.FOLDER}/link-{link.number:04}.json"
        yield from (f"{name}: {fault}" for fault in _link(link, recipe, last_step))
        if _sequence(link.job) not in queued:
            place = f"{job_chain.FOLDER}/{job_chain.QUEUED}"
            yield f"{name}: the job is {link.job}, which {place} does not list"
    missing = {METRICS, RESULT} - set(record.files)
    if missing:
        yield (f"{job_chain.FOLDER}/link-{links[-1].number:04}.end.json: the SHA-256 of"
               f" {' and '.join(sorted(missing))} is missing")


def notes(directory: Path) -> list[str]:
    """Return a note for each link that began at an earlier step than its predecessor had reached.

    The user may have removed checkpoints; the training is complete, but readers must be informed.
    """
    return [
        f"link {link.number} began at step {link.step}, but the previous link ended at step"
        f" {previous.end.step}: checkpoints were removed between them"
        for previous, link in pairwise(job_chain.read(directory))
        if previous.end is not None and link.step < previous.end.step
    ]


def _script(directory: Path, job: JobRecord) -> Iterator[str]:
    """Yield the differences between the scripts of the job and those that were submitted."""
    for name, submitted in job_chain.submitted_files(job).items():
        try:
            digest = hashlib.sha256(read_plain(directory / name)).hexdigest()
        except (OSError, UsageError) as error:
            yield f"{name} cannot be read: {error}"
            continue
        if digest != submitted:
            yield f"{name}: the SHA-256 is {digest}, but run.json has {submitted}"


def _link(link: Link, recipe: Recipe, last_step: int | None) -> Iterator[str]:
    wanted, least = recipe.resources.nodes, recipe.resources.min_nodes
    if not (least or wanted) <= len(link.hosts) <= wanted:
        yield f"the job had {len(link.hosts)} nodes, the recipe has {wanted}"
    steps = [link.step] if link.end is None else [link.step, link.end.step]
    if max(steps) > (last_step or 0):
        yield f"the step is {max(steps)}, but {METRICS} ends at step {last_step}"
    if link.end is not None and link.end.ended < link.started:
        yield f"the job started {link.started}, but ended {link.end.ended}"


def _sequence(number: str) -> str:
    """Return the number of a job without the name of its server, which some commands add."""
    return re.split(r"[.;]", number, maxsplit=1)[0]
