"""Write the report of a run: its verdict, curves and provenance in Markdown, HTML, SVG and JSON."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, Field

from trimaran import __version__
from trimaran.errors import RunError
from trimaran.files import sha256, write_atomic
from trimaran.hostfacts import HostFacts
from trimaran.recipes import cards, library
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.report import charts, history, page, time_breakdown
from trimaran.report.history import MOST, Earlier
from trimaran.report.page import short
from trimaran.report.panels import KeptCurve, Panel, collect
from trimaran.report.run_evidence import Machine, describe
from trimaran.report.time_breakdown import Part
from trimaran.report.variants import RunVariant
from trimaran.reporting import Reporter
from trimaran.run import carriers, job_chain, run_directory
from trimaran.run.fabrics import PROFILES
from trimaran.run.job_chain import Link
from trimaran.run.record import RunRecord
from trimaran.verdict import run_verdict
from trimaran.verdict.metrics import Event, Row, Verdict
from trimaran.verdict.run_verdict import JudgedRun, judge


class Evidence(BaseModel):
    """The content of `verdict.json`: the record of the run and its verdict.

    Published evidence (`evidence/writing.py`) also has the curves, because it does not include the
    metrics, and the variant if the app has variants.
    """

    run: RunRecord
    verdict: Verdict
    curves: list[KeptCurve] = []
    variant: RunVariant | None = Field(default=None, exclude_if=lambda value: value is None)


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
        raise _unwritable(directory, error) from error
    return judged.record, judged.verdict


def write_if_allowed(directory: Path, reporter: Reporter) -> tuple[RunRecord, Verdict, bool]:
    """Judge the run in `directory`, and write its report files as `write` does.

    If this user may not write into the directory, which may belong to another user, `reporter` gets
    a warning, and the run is only judged.

    Returns:
        The record of the run, its verdict, and whether the report was written.

    Raises:
        UsageError, RunError: as in `write`.
    """
    judged = judge(directory)
    try:
        _write(judged)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise _unwritable(directory, error) from error
        reporter.warn(f"the report is not written: {directory}: {error.strerror}")
        return judged.record, judged.verdict, False
    return judged.record, judged.verdict, True


def _unwritable(directory: Path, error: OSError) -> RunError:
    return RunError(
        f"cannot write the report into {directory}: {error.strerror} ({error.filename})",
        code="file-unwritable",
    )


def _write(judged: JudgedRun) -> None:
    directory, recipe, record = judged.directory, judged.recipe, judged.record
    panels = collect(judged.events, recipe.card.card)
    if panels:
        drawn = charts.picture(recipe.name, [charts.chart(panel) for panel in panels])
        write_atomic(directory / "curves.svg", drawn)
    else:
        (directory / "curves.svg").unlink(missing_ok=True)
    values = _values(judged, panels)
    for name in ("report.md", "report.html"):
        write_atomic(directory / name, page.render(f"{name}.j2", values))
    run_directory.keep_fabric(directory, record)
    evidence = Evidence(run=record, verdict=judged.verdict)
    write_atomic(directory / "verdict.json", evidence.model_dump_json(indent=2) + "\n")


def notes(record: RunRecord) -> list[str]:
    """Return the circumstances of the run that readers of the verdict must know."""
    lines = []
    if not record.image.publishable:
        lines.append("not in a container: not publishable as evidence")
    if record.modified:
        lines.append(f"the image was modified ({added(record)}): not publishable as evidence")
    for part in record.resumed:
        lines.append(f"stopped, and resumed at {part.started.isoformat(timespec='seconds')}")
    if not _is_here(record):
        lines.append("this checkout lacks the recipe of the run or its app card, or has another"
                     " version of them")
    if record.git.dirty or any(part.git.dirty for part in record.resumed):
        lines.append("the checkout had uncommitted changes")
    return lines


def added(record: RunRecord) -> str:
    """Return the modifications of a run's image as text."""
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


LINK_COLUMNS = ("link", "job", "nodes", "from step", "to step", "why it ended")


def _values(judged: JudgedRun, panels: Sequence[Panel]) -> dict[str, Any]:
    directory, recipe, record = judged.directory, judged.recipe, judged.record
    verdict, events = judged.verdict, judged.events
    chain_notes = run_verdict.chain_notes(directory) if record.job else []
    parts = time_breakdown.split(record, events)
    return {
        "version": __version__, "recipe": recipe, "record": record, "verdict": verdict,
        "sentences": sentences(verdict),
        "notes": [*verdict.notes, *notes(record), *chain_notes],
        "machine": machine(record),
        "charts": charts.charts(panels),
        "parts": parts, "bars": _bars(parts),
        "links": [_link(one, events) for one in job_chain.read(directory)] if record.job else [],
        "link_columns": LINK_COLUMNS,
        "changes": [
            (key, _shown(recipe.recipe.args.get(key)), _shown(value))
            for key, value in record.recipe.changed.items()
        ],
        "hosts": _hosts(record),
        "networks": _networks(record),
        "facts": facts(record.environment),
        **_published(recipe, record, verdict),
    }


def machine(record: RunRecord) -> str:
    """Return a short description of the machines of the run."""
    return describe([Machine.of(host) for host in (record.host, *record.nodes)])


def _bars(parts: Sequence[Part]) -> list[tuple[Part, float]]:
    begins = accumulate((100 * part.share for part in parts), initial=0.0)
    return [(part, round(begin, 3)) for part, begin in zip(parts, begins, strict=False)]


def _link(link: Link, events: Sequence[Event]) -> tuple[str, ...]:
    end = link.end
    # The newest checkpoint of a complete training may be older than its last step.
    reached = end and (run_verdict.last_step(events) if end.exit_status == 0 else end.step)
    nodes = ", ".join(dict.fromkeys(host.hostname for host in link.hosts))
    return (
        str(link.number), link.job, f"{len(link.hosts)} ({nodes})", f"{link.step:,}",
        f"{reached:,}" if reached is not None else "-", end.reason if end else "unknown",
    )


def _hosts(record: RunRecord) -> list[tuple[str, HostFacts]]:
    """Return (names of the hosts, their common facts) for each kind of machine in a run."""
    kinds: dict[str, tuple[list[str], HostFacts]] = {}
    for host in record.hosts:
        kind = host.model_copy(update={"hostname": ""}).model_dump_json()
        kinds.setdefault(kind, ([], host))[0].append(host.hostname)
    return [(", ".join(dict.fromkeys(names)), host) for names, host in kinds.values()]


def _networks(record: RunRecord) -> str | None:
    """Return a text for the report with the networks of a run on a cluster.

    It has the fabric that the site file names, and the networks that the run used. Return None if
    no fabric was recorded for the run.
    """
    used = record.fabric
    if used is None:
        return None
    found = ", ".join(carriers.described(used.decisive)) or "not shown by the logs"
    return f"{PROFILES[used.wanted].title} in the site file; used: {found}"


def _shown(value: Argument | None) -> str:
    """Return the text of an argument; the argument None means the default of the app."""
    if value is None:
        return "the app's default"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _published(recipe: RecipeFile, record: RunRecord, judged: Verdict) -> dict[str, Any]:
    found = history.find(recipe, record.recipe.changed, record.started)
    card = recipe.card.card
    standings = [history.standing(row, card, record.host, found) for row in judged.rows]
    return {
        "earlier": found,
        "standings": [line for line in standings if line],
        "earlier_columns": ("date", "host", "image", *(row.metric for row in judged.rows),
                            "verdict"),
        "earlier_rows": _earlier_rows(found, record, judged),
        "earlier_notes": _earlier_notes(found, record),
    }


def _earlier_rows(found: Earlier, record: RunRecord, judged: Verdict) -> list[tuple[str, ...]]:
    rows = [(
        "this run", machine(record), short(record.image.digest),
        *(row.measured_text for row in judged.rows), judged.outcome,
    )]
    for one in found.runs[:MOST]:
        same = one.run.image.digest == record.image.digest
        rows.append((
            one.day.isoformat(), one.run.machine,
            f"{short(one.run.image.digest)}{' (the same)' if same else ''}",
            *(_value(row, one.row(row.metric, row.at)) for row in judged.rows), one.verdict.outcome,
        ))
    return rows


def _value(here: Row, there: Row | None) -> str:
    if there is None or there.at != here.at:
        return "-"
    return there.model_copy(update={"digits": here.digits}).measured_text


def _earlier_notes(found: Earlier, record: RunRecord) -> list[str]:
    notes = []
    if len(found.runs) > MOST:
        notes.append(f"{len(found.runs) - MOST} older runs are omitted")
    if found.others:
        notes.append(f"{found.others} runs with other arguments are omitted")
    if any(other.run.recipe.sha256 != record.recipe.sha256 for other in found.runs):
        notes.append("some runs used another version of the recipe's file")
    if found.runs:
        notes.append("`trimaran compare RUN EVIDENCE...` shows whether a difference is significant")
    return [*notes, *(f"unreadable evidence: {fault}" for fault in found.faults)]


_DEPTH = 3
_LONGEST = 300


def sentences(verdict: Verdict) -> list[str]:
    """Return sentences about the outcome and about each metric that decides it."""
    judged = [row for row in verdict.rows if row.required]
    if verdict.outcome == "PASS":
        return ["The run reached what the recipe expects.", *map(_judged, judged)]
    if verdict.outcome == "FAIL":
        failed = [row for row in judged if row.outcome == "FAIL"]
        return ["The run came to its end, but did not reach what the recipe expects.",
                *map(_judged, failed)]
    lines = ["No reference is valid for this run, so its result can be neither right nor wrong."]
    lines += [f"The reason: {reason}." for reason in verdict.reasons]
    return [*lines, *(_judged(row) for row in judged if row.outcome == "PASS")]


def _judged(row: Row) -> str:
    if row.fault is not None:
        return f"{row.metric}: {row.measured_text}, but {row.fault}."
    inside = {"PASS": "as accepted", "FAIL": "which is not accepted"}.get(row.outcome, "not judged")
    return f"{row.metric}: {row.measured_text}, {inside} ({_range(row)})."


def _range(row: Row) -> str:
    if row.low is None and row.high is None:
        return "anything is"
    words = row.accepted_text.replace(">=", "at least").replace("<=", "at most")
    return f"{words} is"


class Fact(NamedTuple):
    """A fact about an app's environment, such as name `packages` and text `torch 2.13.0`."""

    name: str
    text: str


def facts(environment: Mapping[str, object] | None) -> list[Fact]:
    """Return the facts in an app's `environment.json`; its keys differ between apps."""
    return [
        Fact(str(name).replace("_", " "), text) for name, value in (environment or {}).items()
        if name != "argv" and (text := _flat(value, 0))  # reports show the complete command
    ]


def _flat(value: object, depth: int) -> str:
    if value is None or depth > _DEPTH:
        return ""
    if isinstance(value, dict):
        parts = [(key, _flat(below, depth + 1)) for key, below in value.items()]
        text = ", ".join(f"{key} {below}" for key, below in parts if below)
    elif isinstance(value, list):
        text = ", ".join(filter(None, (_flat(below, depth + 1) for below in value)))
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
