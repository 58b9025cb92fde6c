"""Write the report of a run: its verdict, curves and provenance in Markdown, HTML, SVG and JSON."""

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
from trimaran.run.run_directory import recipe_as_run
from trimaran.verdict import consistency, metrics_log
from trimaran.verdict.run_verdict import JudgedRun, Verdict, judge

if TYPE_CHECKING:
    from pydantic.main import IncEx


class Evidence(BaseModel):
    """The content of `verdict.json`: the record of the run and its verdict.

    Published evidence also has the curves, because it does not include the metrics.
    """

    run: RunRecord
    verdict: Verdict
    curves: list[KeptCurve] = []


# Keys with users, hosts and folders of the machine, which are not published. The arguments remain
# known, because the evidence contains the hash of the recipe and the changed arguments.
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
    """Write the evidence of a run to `file`, without folders and names of the machine.

    Args:
        directory: the run directory.
        record: content of `run.json`.
        judged: the verdict.
        file: path of the evidence.

    Raises:
        UsageError: The run was not in a container, its image was modified, or `file` exists.
    """
    if not record.image.publishable:
        raise UsageError(
            f"the run of {record.recipe.name} was not in a container and cannot be evidence",
            code="run-unpublishable",
            hint=f"run it with --engine {' or '.join(selection.containers())}",
        )
    if record.modified:
        raise UsageError(
            f"the image of the run was modified ({_added(record)}), so it cannot be evidence",
            code="run-unpublishable",
            hint="run it without --overlay and --venv; build an image with the added files",
        )
    card = recipe_as_run(directory, record).card.card
    events = metrics_log.read_events(directory / run_directory.METRICS)
    evidence = Evidence(run=record, verdict=judged, curves=curve_points.collect(events, card))
    private = _PRIVATE | ({"site": record.site.private()} if record.site else {})
    files.write_evidence(file, evidence.model_dump_json(indent=2, exclude={"run": private}))


def write(directory: Path) -> tuple[RunRecord, Verdict]:
    """Judge the run in `directory` and write its report files there.

    The files are `verdict.json`, `report.md`, `report.html`, and `curves.svg` if the run has
    curves.

    Returns:
        The record of the run and its verdict.

    Raises:
        UsageError: The run has no verdict; see `run_verdict.judge`.
        RunError: Files of the run disagree, or the report cannot be written.
    """
    judged = judge(directory)
    try:
        _write(judged)
    except OSError as error:
        raise RunError(
            f"cannot write the report into {directory}: {error.strerror} ({error.filename})",
            code="file-unwritable",
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
        [*notes(record), *(consistency.chain_notes(directory) if record.job else [])],
    )
    for name in ("report.md", "report.html"):
        write_atomic(directory / name, page.render(f"{name}.j2", values))
    evidence = Evidence(run=record, verdict=judged.verdict)
    write_atomic(directory / "verdict.json", evidence.model_dump_json(indent=2) + "\n")


def notes(record: RunRecord) -> list[str]:
    """Return the circumstances of the run that readers of the verdict must know."""
    lines = []
    if not record.image.publishable:
        lines.append("not in a container: not publishable as evidence")
    if record.modified:
        lines.append(f"the image was modified ({_added(record)}): not publishable as evidence")
    for part in record.resumed:
        lines.append(f"stopped, and resumed at {part.started.isoformat(timespec='seconds')}")
    if not _is_here(record):
        lines.append("this checkout lacks the recipe of the run or its app card, or has another"
                     " version of them")
    if record.git.dirty or any(part.git.dirty for part in record.resumed):
        lines.append("the checkout had uncommitted changes")
    return lines


def _added(record: RunRecord) -> str:
    return ", ".join(f"{added.kind} {added.path}" for added in record.modified)


def _is_here(record: RunRecord) -> bool:
    """Return whether this checkout has the unchanged recipe and app card of the run."""
    recipe = record.recipe
    app, path = recipe.name.partition("/")[0], library.file_of(recipe.name)
    if path is None or sha256(path) != recipe.sha256:
        return False
    return recipe.card_sha256 is None or (
        app in cards.names() and cards.load(app).sha256 == recipe.card_sha256
    )
