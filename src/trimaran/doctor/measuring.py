"""Measure the nodes of a cluster, or this machine, with a run of the app `collectives`.

The measurement is an ordinary run, with an image of this app and a run directory. Its recipe is
derived from the recipe of the user. This module waits until the run has ended or reaches a time
limit.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from trimaran import strict
from trimaran.cluster import jobs, submission, watch
from trimaran.doctor import findings, qualification
from trimaran.doctor.examination import Examination, NodeFindings
from trimaran.doctor.findings import Finding
from trimaran.doctor.qualification import Found, Qualification
from trimaran.engines import apptainer, selection
from trimaran.errors import RunError, TrimaranError
from trimaran.files import read_end
from trimaran.recipes import cards, library, targets
from trimaran.recipes.library import RecipeFile
from trimaran.recipes.recipe import Recipe
from trimaran.reporting import Reporter
from trimaran.run import job_chain, pipeline, run_directory
from trimaran.run.app_process import LOG
from trimaran.run.request import Request
from trimaran.site_file import Cluster, Site

APP, VERB = "collectives", "qualify"

SECONDS = 60
"""Time in seconds that the app `collectives` may spend on the measurements.

The time begins with the start of the ranks, and ends with the last measurement.
"""

JOB_SECONDS = 240.0
"""Time limit of a measurement in seconds.

The time begins when the job starts, or, on this machine without a job, when the app starts. It
includes the start of the containers, the `SECONDS` of the app, and the time until the app
reports a rank that hangs. The time for the copy of the image to the nodes is added
(`COPY_RATE`).
"""

COPY_RATE = 50e6
"""Assumed rate in bytes per second at which a node copies the image from a shared file system."""

WALLTIME = "00:10:00"
"""Time limit of the job in the batch system.

This module cancels the job earlier, after `JOB_SECONDS`. The limit is longer, because the batch
system sends a signal to the job some time before the limit.
"""

EVERY, PAUSE = 3.0, 0.5
"""Seconds between two queries of the batch system, and between two checks for the result file."""

LOG_BYTES = 1 << 16


@dataclass(frozen=True)
class Measured:
    """The outcome of a measurement.

    Attributes:
        directory: the run directory.
        qualification: the measured values; None: the measurement did not end.
        findings: name of a node -> findings of this node.
    """

    directory: Path
    qualification: Qualification | None
    findings: Found


def derived(base: Recipe, nodes: int, *, queued: bool, seconds: int = SECONDS) -> Recipe:
    """Return a recipe that measures the nodes on which another recipe will run.

    The returned recipe has one rank for each GPU, or one rank for each node without GPUs.

    Args:
        base: the other recipe, which supplies the target, cores, GPUs and kind of image.
        nodes: number of nodes.
        queued: whether a batch system starts the ranks.
        seconds: time that the app may spend.
    """
    own = base.resources
    gpus = own.gpus_per_node
    tasks, cores = gpus or 1, own.tasks_per_node * own.cpus_per_task
    threads = max(1, cores // tasks)
    several = nodes * tasks > 1
    starter = ("srun" if queued else "torchrun") if several else "none"
    return Recipe.model_validate({
        "schema": 1, "summary": f"Qualification of {nodes} nodes.", "app": APP, "verb": VERB,
        "target": base.target, "purpose": "smoke", "image": {"name": _image(base.image.name)},
        "data": {}, "launcher": starter, "env": {"OMP_NUM_THREADS": str(threads)}, "expected": [],
        "resources": {"nodes": nodes, "tasks_per_node": tasks, "cpus_per_task": threads,
                      "gpus_per_task": 1 if gpus else 0, "walltime": WALLTIME},
        "args": {"device": "gpu" if gpus else "cpu", "seconds": seconds},
    })


def _image(name: str) -> str:
    """Return the name of the `collectives` image for the same kind of device as image `name`."""
    kind = name.rpartition("-")[2]
    return f"{APP}-torch-{'cuda13' if kind == 'cuda' else kind}"


@contextmanager
def _recipe_file(recipe: Recipe) -> Iterator[RecipeFile]:
    """Write a recipe to a temporary file, and yield the recipe loaded from this file.

    The file exists during the `with` block, so that a run can copy it.
    """
    text = yaml.safe_dump(
        recipe.model_dump(mode="json", by_alias=True, exclude_none=True), sort_keys=False
    )
    with tempfile.TemporaryDirectory(prefix="trimaran-qualify-") as folder:
        path = Path(folder, "recipe.yaml")
        path.write_text(text, encoding="utf-8")
        name = f"{APP}/{recipe.target}-{VERB}-{recipe.purpose}"
        yield library.load_copy(path, name, cards.load(APP))


def on_nodes(
    base: RecipeFile, site: Site, name: str, cluster: Cluster, nodes: int, reporter: Reporter,
    queue_seconds: float, job_seconds: float = JOB_SECONDS,
) -> Measured:
    """Measure nodes of a cluster by a job of its batch system, and return the outcome.

    Args:
        base: the recipe that will run on the nodes.
        site: the site file.
        name: name of the cluster.
        cluster: the cluster in the site file.
        nodes: number of nodes.
        reporter: shows progress.
        queue_seconds: time limit in seconds for the start of the job.
        job_seconds: time limit in seconds from the start of the job; copying the image does not
            count.

    Raises:
        UsageError, BuildError, RunError: the job cannot be queued, or is not started in time.
    """
    with _recipe_file(derived(base.recipe, nodes, queued=True)) as file:
        request = Request(recipe=file, engine=apptainer.Apptainer(), changes={}, site=site,
                          queued=True)
        # The signal must come before the time limit, and after `JOB_SECONDS`.
        quick = cluster.model_copy(update={"signal_seconds": min(cluster.signal_seconds, 60)})
        done = submission.submit(request, name, quick, reporter)
    image = Path(run_directory.load(done.directory).image.reference)
    job_seconds += image.stat().st_size / COPY_RATE
    try:
        with reporter.bar(f"job {done.job}: measuring {nodes} nodes", None):
            late = not _wait(done.directory, done.job, queue_seconds, job_seconds)
    finally:
        with suppress(TrimaranError):  # the job may have ended
            jobs.cancel([done.directory])
    return _result(done.directory, base, late, job_seconds)


def here(base: RecipeFile, site: Site, reporter: Reporter) -> Measured:
    """Measure the devices of this machine, and return the outcome.

    Raises:
        UsageError, BuildError, RunError: the app cannot run here, fails, or hangs.
    """
    with _recipe_file(derived(base.recipe, 1, queued=False)) as file:
        request = Request(recipe=file, engine=selection.select(None), changes={}, site=site)
        # The time limit is necessary, because the app detects hanging only with several ranks.
        directory = pipeline.execute(request, reporter, JOB_SECONDS)
    return _result(directory, base, False, JOB_SECONDS)


def _wait(directory: Path, job: str, queue_seconds: float, job_seconds: float) -> bool:
    """Wait for the end of the job; return whether the job ended within its time limit.

    Raises:
        RunError: the job was not started in time.
    """
    begun, look = time.monotonic(), 0.0
    started: float | None = None
    while True:
        now = time.monotonic()
        if now >= look:
            look = now + EVERY
            row = watch.look([directory])[0]
            if row.state in watch.ENDED:
                return True
            if started is None and (row.links or row.state == "running"):
                started = now
        if (directory / "result.json").exists():
            return True
        if started is not None and now > started + job_seconds:
            return False
        if started is None and now > begun + queue_seconds:
            raise RunError(f"job {job} was not started within {queue_seconds:.0f} s",
                           code="job-not-started",
                           hint="allow more time with --queue-seconds, or choose another partition")
        time.sleep(PAUSE)


def _result(directory: Path, base: RecipeFile, late: bool, job_seconds: float) -> Measured:
    """Return the outcome of a run that has ended or was cancelled.

    `late` states whether the run was cancelled because it reached the time limit `job_seconds`.
    """
    path = directory / qualification.NAME
    if not path.exists():
        return Measured(directory, None, _unfinished(directory, late, job_seconds))
    measured = strict.load_json(Qualification, path)
    return Measured(directory, measured,
                    qualification.judge(measured, targets.load(base.recipe.target)))


_SILENT = re.compile(r"\branks? ([0-9, -]+) (?:is|are) silent")
_ERROR = re.compile(r"error\[[a-z-]+\]: .*")


def _unfinished(directory: Path, late: bool, job_seconds: float) -> Found:
    """Return the findings about a measurement without a result.

    There is one finding for each node with a rank that hangs. If no such rank is known, there is
    one for every node.
    """
    links = job_chain.read(directory)
    hosts = [host.hostname for host in links[-1].hosts] if links else []
    try:
        log = read_end(directory / LOG, LOG_BYTES).decode(errors="replace")
    except OSError:
        log = ""
    errors = _ERROR.findall(log)
    why = errors[-1] if errors else watch.look([directory])[0].reason or "the app wrote no result"
    if late:
        why = f"no result within {job_seconds:.0f} s of the start of the job, which was cancelled"
    silent = _SILENT.search(why)
    ranks = _numbers(silent[1]) if silent else set()
    count = len(hosts)
    tasks = job_tasks(directory)
    named = sorted({hosts[rank // tasks] for rank in ranks if rank // tasks < count})
    identifier = "qualification-hang" if late or silent else "qualification-failed"
    finding = findings.found(qualification.FINDINGS, identifier, "fail",
                             f"{why}; log: {directory / LOG}")
    return {name: list[Finding]([finding]) for name in named or dict.fromkeys(hosts) or ["a node"]}


def job_tasks(directory: Path) -> int:
    """Return the number of ranks on each node of a run."""
    recipe = strict.load(Recipe, directory / "recipe.yaml")
    return recipe.resources.tasks_per_node


def _numbers(text: str) -> set[int]:
    """Return the set of numbers in a text such as "0, 2-7"."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and len(first) < 7 and len(last) < 7:
            found |= set(range(int(first), int(last or first) + 1))
    return found


def joined(examination: Examination, found: Mapping[str, Sequence[Finding]]) -> Examination:
    """Return a copy of `examination` with the findings in `found` (node -> findings) added.

    Nodes that are only in `found` are added, too. If `examination` and `found` have only one node
    each, both are the same machine. Otherwise, two names mean the same node if they are equal up to
    the first dot, because the batch system may use the short host name.
    """
    left, nodes = dict(found), []
    only = len(examination.nodes) == 1 and len(found) == 1
    short = {name.partition(".")[0]: name for name in found}
    for node in examination.nodes:
        name = next(iter(left), "") if only else node.node
        name = name if name in left else short.get(name.partition(".")[0], name)
        own = left.pop(name, ()) if only or node.role == "compute" else ()
        nodes.append(node.model_copy(update={"findings": (*node.findings, *own)}))
    nodes += [NodeFindings(node=name, role="compute", findings=tuple(own))
              for name, own in left.items()]
    return examination.model_copy(update={"nodes": tuple(nodes)})
