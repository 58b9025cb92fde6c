"""The report of a run: verdict, curves and provenance as Markdown, HTML, SVG and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel

from trimaran import files
from trimaran.engines import selection
from trimaran.errors import RunError, UsageError
from trimaran.files import sha256, write_atomic
from trimaran.recipes import cards, library
from trimaran.report import charts, context, curve_points, page
from trimaran.report.curve_points import KeptCurve
from trimaran.report.panels import collect
from trimaran.run import run_directory
from trimaran.run.record import RunRecord
from trimaran.run.recorded_recipe import recipe_as_run
from trimaran.verdict import chain_consistency, metrics_log
from trimaran.verdict.rules import Verdict
from trimaran.verdict.run_verdict import JudgedRun, judge

if TYPE_CHECKING:
    from pydantic.main import IncEx


class Evidence(BaseModel):
    """`verdict.json`: all that is needed to believe or doubt the verdict, in one file.

    Published evidence has the curves, too, since the metrics that they are drawn from stay behind.
    """

    run: RunRecord
    verdict: Verdict
    curves: list[KeptCurve] = []


# What tells of the machine's users and folders and nothing of the result. The exact
# arguments stay known: they are the recipe's, which is there by its hash, and the changes.
_PRIVATE: dict[str, IncEx | bool] = {
    "command": True,
    "launch": True,
    "image": {"reference"},
    "data": {"__all__": {"path"}},
    "initial": {"path"},
    "host": {"hostname"},
    "nodes": {"__all__": {"hostname"}},
    "resumed": {"__all__": {"host": {"hostname"}, "nodes": {"__all__": {"hostname"}}}},
    "environment": {"argv"},
}


def write_evidence(directory: Path, record: RunRecord, judged: Verdict, file: Path) -> None:
    """Write verdict and curves of the run in `directory` to `file`.

    Folders and names of the machine are left out.

    Raises:
        UsageError: the run was not in a container, its image was modified, or `file` exists.
    """
    if not record.image.publishable:
        raise UsageError(
            f"the run of {record.recipe.name} was not in a container: it is no evidence",
            hint=f"run it with --engine {' or '.join(selection.containers())}",
        )
    if record.modified:
        raise UsageError(
            f"the image of the run was modified ({_added(record)}): it is no evidence",
            hint="run it without --overlay and --venv; build what is needed into an image",
        )
    card = recipe_as_run(directory, record).card.card
    events = metrics_log.read_events(directory / run_directory.METRICS)
    evidence = Evidence(run=record, verdict=judged, curves=curve_points.collect(events, card))
    private = _PRIVATE | ({"site": record.site.private()} if record.site else {})
    files.write_evidence(file, evidence.model_dump_json(indent=2, exclude={"run": private}))


def write(directory: Path) -> tuple[RunRecord, Verdict]:
    """Judge the run in `directory` and write its report files there.

    Writes `verdict.json`, `report.md`, `report.html`, and `curves.svg` if there are curves.

    Raises:
        UsageError: the run is not judged; see `run_verdict.judge`.
        RunError: files of the run disagree, or the report cannot be written.
    """
    judged = judge(directory)
    try:
        _write(judged)
    except OSError as error:
        raise RunError(
            f"cannot write the report into {directory}: {error.strerror} ({error.filename})"
        ) from error
    return judged.record, judged.verdict


def _write(judged: JudgedRun) -> None:
    directory, recipe, record = judged.directory, judged.recipe, judged.record
    panels = collect(judged.events, recipe.card.card)
    if panels:
        drawn = charts.picture(recipe.name, [charts.chart(panel) for panel in panels])
        write_atomic(directory / "curves.svg", drawn)
    else:
        (directory / "curves.svg").unlink(missing_ok=True)
    values = context.collect(
        directory, recipe, record, judged.verdict, judged.events, panels,
        [*notes(record), *(chain_consistency.notes(directory) if record.job else [])],
    )
    for name in ("report.md", "report.html"):
        write_atomic(directory / name, page.render(f"{name}.j2", values))
    evidence = Evidence(run=record, verdict=judged.verdict)
    write_atomic(directory / "verdict.json", evidence.model_dump_json(indent=2) + "\n")


def notes(record: RunRecord) -> list[str]:
    """Return what a reader of the verdict must know about the circumstances of the run."""
    said = []
    if not record.image.publishable:
        said.append("not in a container: not publishable as evidence")
    if record.modified:
        said.append(f"the image was modified ({_added(record)}): not publishable as evidence")
    for part in record.resumed:
        said.append(f"stopped, and resumed at {part.started.isoformat(timespec='seconds')}")
    if not _is_here(record):
        said.append("the recipe that was run, or what its app says of itself, is not in this"
                    " checkout, or is another one now")
    if record.git.dirty or any(part.git.dirty for part in record.resumed):
        said.append("the checkout had uncommitted changes")
    return said


def _added(record: RunRecord) -> str:
    return ", ".join(f"{added.kind} {added.path}" for added in record.modified)


def _is_here(record: RunRecord) -> bool:
    """Return whether this checkout has the recipe that was run and its card, byte by byte."""
    said = record.recipe
    app, path = said.name.partition("/")[0], library.file_of(said.name)
    if path is None or sha256(path) != said.sha256:
        return False
    return said.card_sha256 is None or (
        app in cards.names() and cards.load(app).sha256 == said.card_sha256
    )
