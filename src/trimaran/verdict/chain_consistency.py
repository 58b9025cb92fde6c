"""Whether the links of a chain fit the run that they are of: its jobs, nodes, steps and script."""

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
    """Tell what does not agree in the files of a submitted run whose training has ended.

    Args:
        directory: of the run.
        record: its `run.json`, with the links folded in.
        recipe: on as many nodes as were asked for.
        last_step: that of the metrics; None: they tell none.
    """
    if record.job is not None:
        yield from _script(directory, record.job)
    found = job_chain.read(directory)
    if not found:
        yield f"run.json: {record.status}, but no job has left a link of its chain"
        return
    queued = {_sequence(number) for number in job_chain.numbers(directory)}
    for link in found:
        name = f"{job_chain.FOLDER}/link-{link.number:04}.json"
        yield from (f"{name}: {fault}" for fault in _link(link, recipe, last_step))
        if _sequence(link.job) not in queued:
            place = f"{job_chain.FOLDER}/{job_chain.QUEUED}"
            yield f"{name}: it is of job {link.job}, which {place} does not name"
    missing = {METRICS, RESULT} - set(record.files)
    if missing:
        yield (f"{job_chain.FOLDER}/link-{found[-1].number:04}.end.json: it has no SHA-256 of"
               f" {' and '.join(sorted(missing))}")


def notes(directory: Path) -> list[str]:
    """Return where a link went on from an earlier step than the one before it had reached.

    Its user may have removed checkpoints: the training is whole, but a reader should know.
    """
    return [
        f"link {following.number} began at step {following.step}, the one before it ended at"
        f" {one.end.step}: checkpoints were removed between them"
        for one, following in pairwise(job_chain.read(directory))
        if one.end is not None and following.step < one.end.step
    ]


def _script(directory: Path, job: JobRecord) -> Iterator[str]:
    """Compare the files that the jobs read with those that were submitted."""
    for name, submitted in job_chain.submitted_files(job).items():
        try:
            digest = hashlib.sha256(read_plain(directory / name)).hexdigest()
        except (OSError, UsageError) as error:
            yield f"{name} cannot be read: {error}"
            continue
        if digest != submitted:
            yield f"{name}: SHA-256 {digest}, run.json says that {submitted} was submitted"


def _link(link: Link, recipe: Recipe, last_step: int | None) -> Iterator[str]:
    wanted, least = recipe.resources.nodes, recipe.resources.min_nodes
    if not (least or wanted) <= len(link.hosts) <= wanted:
        yield f"it has {len(link.hosts)} nodes, the recipe has {wanted}"
    steps = [link.step] if link.end is None else [link.step, link.end.step]
    if max(steps) > (last_step or 0):
        yield f"it tells of step {max(steps)}, {METRICS} ends at {last_step}"
    if link.end is not None and link.end.ended < link.started:
        yield f"it started {link.started}, and ended {link.end.ended}"


def _sequence(number: str) -> str:
    """Return the number of a job without its server's name, which not every command adds."""
    return re.split(r"[.;]", number, maxsplit=1)[0]
