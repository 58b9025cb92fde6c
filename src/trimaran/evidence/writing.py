"""Write the evidence of a run without private facts, with the hash of its content."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimaran import files, parsing, paths, strict
from trimaran.engines import selection
from trimaran.errors import UsageError
from trimaran.evidence import content, privacy
from trimaran.evidence.check import DATED
from trimaran.recipes import library
from trimaran.report import report, variants
from trimaran.report.history import RESULTS
from trimaran.report.panels import kept_curves
from trimaran.report.run_evidence import Machine, RunEvidence
from trimaran.run import run_directory
from trimaran.run.record import RunRecord
from trimaran.run.run_directory import recipe_as_run
from trimaran.verdict import metrics
from trimaran.verdict.metrics import Verdict

if TYPE_CHECKING:
    from pydantic.main import IncEx

# Keys with users, hosts and folders of the machine, which are not published.
_PRIVATE: dict[str, IncEx | bool] = {
    "command": True,
    "launch": True,
    "image": {"reference", "emulated"},
    "data": {"__all__": {"path"}},
    "initial": {"path"},
    "job": {"before"},
    "host": {"hostname"},
    "nodes": {"__all__": {"hostname"}},
    "resumed": {"__all__": {"host": {"hostname"}, "nodes": {"__all__": {"hostname"}}}},
    "environment": {"argv"},
}


def write(directory: Path, record: RunRecord, judged: Verdict, file: Path) -> None:
    """Write the evidence of a run to `file`, without private facts and with its hash.

    Args:
        directory: the run directory.
        record: content of `run.json`.
        judged: the verdict.
        file: path of the evidence.

    Raises:
        UsageError: The run was not in a container, its image was modified, `file` exists, or the
            evidence would still contain a private fact or would not be valid.
    """
    _refuse_unpublishable(record)
    names = _names(record)
    whole = content.sealed(privacy.cleaned(_content(directory, record, judged), names))
    if private := next(privacy.faults(whole, names), None):
        at, problem = private
        raise UsageError(f"{directory}: {parsing.dotted(at)} {problem}, so it cannot be published",
                         code="evidence-private",
                         hint="rename what is named there, and run the recipe again")
    if problems := strict.problems(RunEvidence, whole):
        raise UsageError(
            "\n".join(f"{directory}: {parsing.dotted(one.where) or 'the run'}: {one.text}"
                      for one in problems), code="evidence-invalid",
            hint="run the recipe again with this version of Trimaran",
        )
    files.write_evidence(file, json.dumps(whole, indent=2))


def _names(record: RunRecord) -> list[str]:
    """Return the names of users and hosts that evidence of the run must not contain."""
    return [*privacy.names_here(), *(host.hostname for host in record.hosts)]


def _refuse_unpublishable(record: RunRecord) -> None:
    if not record.image.publishable:
        raise UsageError(
            f"the run of {record.recipe.name} was not in a container and cannot be evidence",
            code="run-unpublishable",
            hint=f"run it with --engine {' or '.join(selection.containers())}",
        )
    if record.modified:
        raise UsageError(
            f"the image of the run was modified ({report.added(record)}), so it cannot be evidence",
            code="run-unpublishable",
            hint="run it without --overlay and --venv; build an image with the added files",
        )


def _content(directory: Path, record: RunRecord, judged: Verdict) -> Any:
    """Return the content of evidence as JSON data, whose texts may still contain private facts."""
    recipe = recipe_as_run(directory, record)
    events = metrics.read_events(directory / run_directory.METRICS)
    evidence = report.Evidence(
        run=record, verdict=judged, curves=kept_curves(events, recipe.card.card),
        variant=variants.of_recipe(recipe, record.recipe.changed, events),
    )
    private = _PRIVATE | ({"site": record.site.private()} if record.site else {})
    found = parsing.parse_json(evidence.model_dump_json(exclude={"run": private}))
    if record.launch is not None:
        # These words have paths in the container only, and no words of the batch system.
        found["run"]["command"] = [*record.launch.in_container, *record.launch.arguments]
    return found


def add(
    directory: Path, record: RunRecord, judged: Verdict, *, to: Path | None = None,
    label: str | None = None,
) -> Path:
    """Write the evidence of a run to a new file below `site/results`, and return the path.

    Args:
        directory: the run directory.
        record: content of `run.json`.
        judged: the verdict.
        to: path of the file; None: a new file below `site/results`.
        label: description of the machine, with which the name of the file ends; None: the
            description is derived from the hardware facts.

    Raises:
        UsageError: as in `write`; the label is not allowed; the evidence of this run exists; or
            Trimaran was installed from a wheel, which has no place for new evidence.
    """
    if to is None:
        folder = _folder(record.recipe.name)
        _refuse_second(folder, record.started)
        to = _free(folder, f"{record.started.date()}-{_label(record, label)}")
    write(directory, record, judged, to)
    return to


def _folder(recipe: str) -> Path:
    """Return the folder for the evidence of a recipe.

    It is below `site/results` of the checkout, or of the user's folder that contains the recipe.
    """
    file, root = library.file_of(recipe), paths.repository()
    if file is not None:
        root = next((one for one in paths.folders() if file.is_relative_to(one)), root)
    paths.refuse_installed(root / RESULTS)
    return root / RESULTS / recipe.partition("@")[0]


def _refuse_second(folder: Path, started: dt.datetime) -> None:
    """Check that no file in `folder` is evidence of the run that began at `started`.

    Raises:
        UsageError: such a file exists.
    """
    for path in sorted(folder.glob("*.json")):
        if strict.load_json(RunEvidence, path).run.started == started:
            raise UsageError(f"{path} is evidence of this run already", code="file-exists",
                             hint="hand in this file, or name another place with --to")


def _free(folder: Path, name: str) -> Path:
    """Return the path of a new JSON file in `folder`: `name`, with a number if that file exists."""
    path, number = folder / f"{name}.json", 1
    while path.exists():
        number += 1
        path = folder / f"{name}-{number}.json"
    return path


def _label(record: RunRecord, given: str | None) -> str:
    """Return the part of the file name after the date: the label `given`, or a generated label.

    A generated label consists of the machine, the number of nodes, the point (which run of a series
    it is) and the changed arguments.

    Raises:
        UsageError: `given` has characters that are not allowed, or contains the name of a host
            or user.
    """
    names = _names(record)
    if given is not None:
        if privacy.name_in(given, names) or not DATED.fullmatch(f"2000-01-01-{given}.json"):
            raise UsageError(
                f"--label {given}: contains the name of a host or user, or is not of the form"
                " [a-z0-9][A-Za-z0-9._-]*",
                code="name-invalid", hint="describe the hardware, such as epyc-2core or 8x-mi300x",
            )
        return given
    machine, nodes = Machine.of(record.host), 1 + len(record.nodes)
    kinds = dict.fromkeys(machine.accelerators)
    words = [f"{machine.accelerators.count(kind)}x-{kind}" for kind in kinds] or [
        machine.processor, f"{machine.cores}core"]
    words += [f"{nodes}nodes"] if nodes > 1 else []
    point = record.recipe.name.partition("@")[2]
    words += [f"point{point}"] if point else []
    changed = privacy.cleaned(dict(record.recipe.changed), names)
    words += [f"{key}{value}" for key, value in changed.items()]
    return "-".join(filter(None, map(_slug, words)))[:_LONGEST].rstrip("-.")


_LONGEST = 120
"""Maximum length of a label; file systems allow names of 255 bytes."""


def _slug(text: str) -> str:
    """Return a text in lower case, with hyphens between words and without trademark signs."""
    plain = re.sub(r"\((?:r|tm)\)|@.*", "", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-.")
