"""Collect the values of a report from the files of a run and from published evidence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from trimaran import __version__
from trimaran.hostfacts import HostFacts
from trimaran.recipes.cards import Argument
from trimaran.recipes.library import RecipeFile
from trimaran.report import charts, history, time_breakdown
from trimaran.report.history import MOST, Earlier
from trimaran.report.page import short
from trimaran.report.panels import Panel
from trimaran.report.run_evidence import Machine, describe
from trimaran.report.time_breakdown import Part
from trimaran.run import job_chain
from trimaran.run.job_chain import Link
from trimaran.run.record import RunRecord
from trimaran.verdict import consistency, explain
from trimaran.verdict.metrics_log import Event
from trimaran.verdict.run_verdict import Row, Verdict

LINK_COLUMNS = ("link", "job", "nodes", "from step", "to step", "why it ended")


def collect(
    directory: Path, recipe: RecipeFile, record: RunRecord, judged: Verdict,
    events: Sequence[Event], panels: Sequence[Panel], notes: Sequence[str],
) -> dict[str, Any]:
    """Return all values that the templates of a report use, by name."""
    parts = time_breakdown.split(record, events)
    return {
        "version": __version__, "recipe": recipe, "record": record, "verdict": judged,
        "sentences": explain.sentences(judged),
        "notes": [*judged.notes, *notes],
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
        "facts": explain.facts(record.environment),
        **_published(recipe, record, judged),
    }


def machine(record: RunRecord) -> str:
    """Return a short description of the machines of the run."""
    return describe([Machine.of(host) for host in (record.host, *record.nodes)])


def _bars(parts: Sequence[Part]) -> list[tuple[Part, float]]:
    """Return each part of the time with its start in percent."""
    begins = accumulate((100 * part.share for part in parts), initial=0.0)
    return [(part, round(begin, 3)) for part, begin in zip(parts, begins, strict=False)]


def _link(link: Link, events: Sequence[Event]) -> tuple[str, ...]:
    end = link.end
    # The newest checkpoint of a complete training may be older than its last step.
    reached = end and (consistency.last_step(events) if end.exit_status == 0 else end.step)
    nodes = ", ".join(dict.fromkeys(host.hostname for host in link.hosts))
    return (
        str(link.number), link.job, f"{len(link.hosts)} ({nodes})", f"{link.step:,}",
        f"{reached:,}" if reached is not None else "-", end.reason if end else "unknown",
    )


def _hosts(record: RunRecord) -> list[tuple[str, HostFacts]]:
    """Return the names and the common facts of the hosts for each kind of machine."""
    kinds: dict[str, tuple[list[str], HostFacts]] = {}
    for host in record.hosts:
        kind = host.model_copy(update={"hostname": ""}).model_dump_json()
        kinds.setdefault(kind, ([], host))[0].append(host.hostname)
    return [(", ".join(dict.fromkeys(names)), host) for names, host in kinds.values()]


def _shown(value: Argument | None) -> str:
    """Return the text of an argument, which is None if the recipe does not set it."""
    if value is None:
        return "the app's default"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _published(recipe: RecipeFile, record: RunRecord, judged: Verdict) -> dict[str, Any]:
    """Return the values of the report about earlier evidence, compared with this run."""
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
            *(_value(row, one.row(row.metric)) for row in judged.rows), one.verdict.outcome,
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
