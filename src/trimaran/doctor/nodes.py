"""Collect the facts of compute nodes by a short job of the batch system.

The job writes one file for each node into a folder that all nodes share. This module waits for
these files, but not longer than its time limits. A node that does not answer in time is a finding.

For PBS and LSF, this module was tested only with simulated commands of the batch system.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from trimaran import __version__
from trimaran.cluster import script
from trimaran.cluster.scheduler import NODES, TASKS, Scheduler, Shape
from trimaran.cluster.script import SCHEDULERS
from trimaran.doctor import facts, findings
from trimaran.doctor.facts import Fact, NodeFacts
from trimaran.doctor.findings import Explained, Finding
from trimaran.errors import RunError, TrimaranError, UsageError
from trimaran.files import read_plain
from trimaran.launch.specification import Text, quote, shell_source
from trimaran.recipes.recipe import Recipe
from trimaran.reporting import Reporter
from trimaran.run import node_scripts
from trimaran.site_file import Cluster

NODE_SECONDS = 60.0
"""Maximum time in seconds from the start of the job until all nodes have answered."""

WALLTIME = "00:05:00"
PAUSE = 0.2
"""Seconds between two checks of the folder for new files."""

EVERY = 3.0
"""Seconds between two queries of the batch system."""

FINDINGS: dict[str, Explained] = {
    "node-silent": Explained(
        "machine", "fail",
        f"Each node of the job answers within {NODE_SECONDS:.0f} s. A node that does not would let"
        " a run hang, or does not share the folder with the login node.",
        "name a folder that all nodes share as scratch in the site file; else exclude the node and"
        " report it (`sinfo -R` or `pbsnodes -l` may list it)",
        "a node of a real two-node Slurm whose slurmd is stopped",
    ),
}


def silent(node: str) -> Finding:
    """Return the finding about a node that has not answered in time."""
    return findings.found(FINDINGS, "node-silent", "fail",
                          f"{node} wrote no answer into the shared folder within"
                          f" {NODE_SECONDS:.0f} s of the start of the job")


def collect(
    cluster: Cluster, count: int, parameters: dict[str, str], recipe: Recipe | None,
    reporter: Reporter, queue_seconds: float, node_seconds: float = NODE_SECONDS,
) -> tuple[list[NodeFacts], list[str]]:
    """Return the facts of `count` nodes, and the names of the nodes that did not answer.

    Args:
        cluster: the cluster in the site file.
        count: number of nodes.
        parameters: shell variables of the probe.
        recipe: the job requests the cores and GPUs of this recipe on each node; None: one core.
        reporter: shows progress.
        queue_seconds: time limit in seconds for the start of the job.
        node_seconds: time limit in seconds for the answers, from the start of the job.

    Raises:
        UsageError: the batch system is not on PATH.
        RunError: the batch system refuses the job, or does not start it in time.
    """
    scheduler = SCHEDULERS[cluster.scheduler]
    scheduler.check()
    place = cluster.scratch or Path.cwd()
    with _folder(scheduler, place) as folder:
        _write(folder, scheduler, cluster, count, parameters, recipe)
        asked = int(time.time())
        job = scheduler.submit(Path("job.sh"), folder)
        try:
            with reporter.bar(f"job {job}: waiting for {count} node{'s' if count > 1 else ''}",
                              None):
                answers, missing = _wait(folder, scheduler, job, count, queue_seconds,
                                         node_seconds)
                return [_timed(answer, asked) for answer in answers], missing
        finally:
            with suppress(TrimaranError):  # the job may just have ended
                if _may_run(scheduler, job):
                    scheduler.cancel(job)


def _timed(answer: NodeFacts, asked: int) -> NodeFacts:
    """Return the facts of a node, with two more facts: `asked` and `answered`.

    They are the times on this machine's clock before and after the node collected its facts.
    """
    times = {"asked": asked, "answered": int(time.time())}
    return replace(answer, facts={
        **answer.facts, **{name: Fact(0, str(value)) for name, value in times.items()}
    })


@contextmanager
def _folder(scheduler: Scheduler, place: Path) -> Iterator[Path]:
    """Yield a new folder in `place` for the files of the job, and remove this folder afterwards."""
    try:
        place.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="trimaran-doctor-", dir=place)).absolute()
    except OSError as error:
        raise UsageError(f"cannot write into {place}, which the nodes should share:"
                         f" {error.strerror}", code="file-unwritable",
                         hint="call trimaran in a folder that the nodes share, or set scratch in"
                         " the site file") from error
    try:
        for pattern in scheduler.reads:
            if pattern in str(folder):
                raise UsageError(f"{folder}: {scheduler.title} replaces {pattern} in paths",
                                 code="scheduler-unsupported",
                                 hint="call trimaran in another folder, or set scratch in the site"
                                 " file")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(
    folder: Path, scheduler: Scheduler, cluster: Cluster, count: int, parameters: dict[str, str],
    recipe: Recipe | None,
) -> None:
    (folder / "job").mkdir()  # for the output of the batch system
    (folder / "probe.sh").write_text(facts.probe_source(parameters), encoding="utf-8")
    (folder / "functions.sh").write_text(script.functions(), encoding="utf-8")
    (folder / "job.sh").write_text(job_script(folder, scheduler, cluster, count, recipe),
                                   encoding="utf-8")


def job_script(
    folder: Path, scheduler: Scheduler, cluster: Cluster, count: int, recipe: Recipe | None
) -> str:
    """Return the script of the job that collects the facts of `count` nodes into `folder`.

    The job has one task on each node, with all cores and GPUs that the tasks of the recipe use.
    """
    whole = Shape.of(recipe) if recipe is not None else None
    shape = Shape(
        nodes=count, tasks_per_node=1, cpus_per_task=whole.cpus_per_node if whole else 1,
        gpus_per_node=whole.gpus_per_node if whole else 0, walltime=WALLTIME,
    )
    name = scheduler.called(f"trimaran-doctor-{folder.name[-8:]}")
    # The signal must come before the time limit, which is short.
    options = scheduler.options(name, shape, cluster.model_copy(update={"signal_seconds": 60}),
                                False)
    start: tuple[Text, ...] = scheduler.ranks(shape, cluster, NODES, TASKS)
    return node_scripts.fill("trimaran.doctor", "nodes.sh.j2", {
        "version": __version__, "options": options, "scheduler": scheduler,
        "commands": quote(scheduler.folder()), "folder": quote(folder), "nodes": count,
        "job": quote(folder / "job.sh"),
        "modules": [quote(one) for one in cluster.modules] if start[0] == "mpirun" else [],
        "start": " ".join(map(shell_source, start)),
    })


def _active(scheduler: Scheduler, job: str) -> bool:
    state = scheduler.states([job]).get(job)
    return state is not None and state.active


def _wait(
    folder: Path, scheduler: Scheduler, job: str, count: int, queue_seconds: float,
    node_seconds: float,
) -> tuple[list[NodeFacts], list[str]]:
    """Wait until the nodes have answered.

    Returns:
        The facts of these nodes, and the names of the nodes that did not answer.
    """
    begun = time.monotonic()
    started: float | None = None
    look = begun + EVERY
    while len(_files(folder)) < count:
        now = time.monotonic()
        if started is None and (folder / "nodes").exists():
            started = now
        if started is not None and now > started + node_seconds:
            break
        if started is None and now > begun + queue_seconds:
            raise RunError(f"job {job} was not started within {queue_seconds:.0f} s",
                           code="job-not-started",
                           hint="allow more time with --queue-seconds, or choose another partition")
        if now > look:
            look = now + EVERY
            _refresh(folder)
            if not _may_run(scheduler, job) and len(_files(folder)) < count:
                time.sleep(EVERY)  # a network file system may show the last files later
                _refresh(folder)
                break
        time.sleep(PAUSE)
    return _answers(folder, count)


def _may_run(scheduler: Scheduler, job: str) -> bool:
    """Return whether the job is queued or running; True if the batch system does not answer.

    A busy batch system may leave a query unanswered; the time limits end the wait in any case.
    """
    try:
        return _active(scheduler, job)
    except TrimaranError:
        return True


def _refresh(folder: Path) -> None:
    """Make and remove a file in `folder`, so that new files of other machines become visible.

    An NFS client caches the content of a folder for up to a minute. If the client itself changes
    the folder, it reads the folder again (nfs(5), "Directory entry caching").
    """
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=folder):
        pass


def _files(folder: Path) -> list[Path]:
    """Return the files that the nodes have written: one for each node that has answered."""
    return sorted(folder.glob("facts-*"))


def _answers(folder: Path, count: int) -> tuple[list[NodeFacts], list[str]]:
    answers = [
        facts.parse(read_plain(path).decode(errors="replace")) for path in _files(folder)
    ]
    names: list[str] = []
    with suppress(OSError):
        names = (folder / "nodes").read_text(encoding="utf-8").split()
    known = {answer.node.partition(".")[0] for answer in answers}
    missing = [name for name in names if name.partition(".")[0] not in known]
    silent_nodes = count - len(answers)  # `missing` may also name the login node
    return answers, (missing + ["a node"] * count)[:silent_nodes]
