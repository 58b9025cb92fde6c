"""Check files of evidence before they are published: hash, form, privacy, verdict and recipe."""

from __future__ import annotations

import datetime as dt
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trimaran import files, parsing, strict
from trimaran.errors import UsageError, unreadable
from trimaran.evidence import age, content, privacy
from trimaran.parsing import Location
from trimaran.recipes import library
from trimaran.recipes.library import RecipeFile
from trimaran.report.history import RESULTS
from trimaran.report.run_evidence import RunEvidence

LIMIT = 1024 * 1024
"""Maximum size of a file in bytes; the largest evidence of this project is twenty times smaller."""

MOST = 20
"""Maximum number of faults that are reported for one file."""

DATED = re.compile(r"(\d{4}-\d{2}-\d{2})-[a-z0-9][A-Za-z0-9._-]*\.json")
"""Pattern of the file name of evidence: date, label of the machine, and a suffix if several files
have the same date and label."""

OTHER_KINDS = ("benchmarks", "faults", "images", "mutants", "tests")
"""Folders of `site/results` whose files are not evidence of runs; these files are not checked."""

AGAIN = "do not edit evidence: write it again with `trimaran evidence add RUN`"

Version = Literal["current", "older", "unknown"]


@dataclass(frozen=True)
class Fault:
    """One reason to refuse a file.

    Attributes:
        code: code of the error.
        problem: what is wrong.
        key: key path in the file; "": the whole file.
        line: line of the key; None: unknown.
    """

    code: str
    problem: str
    key: str = ""
    line: int | None = None

    def text(self, path: Path) -> str:
        """Return the fault as a message with file, line and key.

        If the fault has no key, return `problem`, which already names the file.
        """
        if not self.key:
            return self.problem
        place = f"{path}" if self.line is None else f"{path}:{self.line}"
        return f"{place}: {self.key}: {self.problem}"


@dataclass(frozen=True)
class Checked:
    """The result of the check of one file.

    Attributes:
        path: path of the file.
        faults: reasons to refuse the file; [] if it is accepted.
        notes: facts that a reader must know, but that are no reason to refuse the file.
        evidence: the content of the file; None if its form is not valid.
        version: whether the run used the version of the recipe in this checkout ("current") or
            another version ("older"); "unknown" if the recipe is not in this checkout.
        stale: whether the evidence is older than 12 months.
    """

    path: Path
    faults: Sequence[Fault]
    notes: Sequence[str] = ()
    evidence: RunEvidence | None = field(default=None, repr=False)
    version: Version = "unknown"
    stale: bool = False


def found(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files to check: the named files, and the JSON files of runs in named folders.

    Raises:
        UsageError: a path does not exist, or a folder contains no evidence of runs.
    """
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = [Path(place, name) for place, _, names in os.walk(path) for name in names
                  if name.endswith(".json")]
        runs = sorted(one for one in inside if not _is_of_another_kind(one))
        if not runs:
            raise UsageError(f"{path} contains no evidence of runs", code="file-missing",
                             hint="name files, or a folder below site/results")
        yield from runs


def check(path: Path, today: dt.date, names: Sequence[str], known: frozenset[str]) -> Checked:
    """Check one file of evidence.

    Args:
        path: the file.
        today: the date that determines whether the evidence is stale.
        names: names of users and hosts that must not occur; see `privacy.names_here`.
        known: the SHA-256 of the older evidence files, which do not contain their own hash; see
            `content.listed`.
    """
    try:
        raw = _read(path)
        whole = parsing.parse_json(raw)
    except parsing.Malformed as error:
        return Checked(path, [Fault("file-invalid", f"{path}:{error.line or 1}: {error}")])
    except UsageError as error:
        return Checked(path, [Fault(error.code, error.message)])
    if (problem := _foreign(whole)) is not None:
        return Checked(path, [_with_line(path, *problem)])
    faults: list[tuple[str, Location, str]] = []
    if (edited := content.fault(whole, raw, known)) is not None:
        code = "evidence-edited" if content.HASH in whole else "evidence-unhashed"
        faults.append((code, (content.HASH,), edited))
    problems = strict.problems(RunEvidence, whole)
    faults += [(_code_of(one.type), one.where, one.text) for one in problems]
    faults += [("evidence-private", at, problem) for at, problem in privacy.faults(whole, names)]
    if problems:
        return Checked(path, _located(path, faults))
    evidence = RunEvidence.model_validate(whole)
    recipe = _recipe(evidence)
    faults += _misplaced(path, evidence)
    if (name := privacy.name_in(path.name, names)) is not None:
        faults.append(("evidence-private", (), f"the name of the file contains {name}, which is"
                       " the name of a user or host"))
    faults += _contradictions(evidence, recipe)
    version = _version(evidence, recipe)
    stale = age.is_stale(evidence.day, today)
    return Checked(path, _located(path, faults), _notes(evidence, version, stale), evidence,
                   version, stale)


def _read(path: Path) -> bytes:
    try:
        return files.read_plain(path, LIMIT)
    except OSError as error:
        raise unreadable(path, error) from error


def _foreign(whole: object) -> tuple[str, Location, str] | None:
    """Return the fault of parsed JSON that is not evidence of a run, or has an unknown schema.

    Return None if there is no such fault.
    """
    if not isinstance(whole, dict) or "run" not in whole:
        return ("evidence-invalid", (),
                "is not evidence of a run, as `trimaran evidence add` writes it")
    schema = whole.get("schema", content.SCHEMA)
    if type(schema) is not int or schema != content.SCHEMA:
        return ("evidence-invalid", ("schema",), f"is unknown; this Trimaran reads the schema"
                                                 f" {content.SCHEMA}")
    return None


def _code_of(kind: str) -> str:
    return "evidence-contradicts" if kind == strict.CONTRADICTION else "evidence-invalid"


def _located(path: Path, faults: Sequence[tuple[str, Location, str]]) -> list[Fault]:
    """Return the first `MOST` faults, each with the line of the evidence file that has the fault.

    If there are more faults, the last item of the result states their number.

    Args:
        faults: for each fault, the error code, the path of its key in the file, and a message.
    """
    if not faults:
        return []
    lines = strict.lines_of_json(path)
    found = [
        Fault(code, problem, parsing.dotted(at) or "the file",
              None if lines is None else parsing.line_of(lines, at))
        for code, at, problem in faults[:MOST]
    ]
    if len(faults) > MOST:
        found.append(Fault(faults[0][0], f"{path}: {len(faults) - MOST} more faults"))
    return found


def _with_line(path: Path, code: str, at: Location, problem: str) -> Fault:
    return _located(path, [(code, at, problem)])[0]


def _results_parts(path: Path) -> tuple[str, ...] | None:
    """Return the parts of `path` below `site/results`; None if `path` is not below this folder."""
    parts, folder = path.absolute().parts, tuple(RESULTS.split("/"))
    for at in range(len(parts) - len(folder), -1, -1):
        if parts[at : at + len(folder)] == folder:
            return parts[at + len(folder) :]
    return None


def _is_of_another_kind(path: Path) -> bool:
    parts = _results_parts(path)
    return parts is not None and parts[0] in OTHER_KINDS


def _misplaced(path: Path, evidence: RunEvidence) -> Iterator[tuple[str, Location, str]]:
    """Yield a fault if a file below `site/results` has a wrong folder or name.

    A file at any other path has no such faults.
    """
    parts = _results_parts(path)
    if parts is None:
        return
    wanted = evidence.run.recipe.name.partition("@")[0]
    if "/".join(parts[:-1]) != wanted:
        yield ("evidence-misplaced", ("run", "recipe", "name"),
               f"is {evidence.run.recipe.name}, whose evidence belongs into {RESULTS}/{wanted}")
    named = DATED.fullmatch(parts[-1])
    if named is None:
        yield "evidence-misplaced", (), "the name of the file is not DATE-HOST.json"
    elif named[1] != evidence.day.isoformat():
        yield ("evidence-misplaced", ("run", "started"),
               f"is on {evidence.day}, but the name of the file has {named[1]}")


def _recipe(evidence: RunEvidence) -> RecipeFile | None:
    """Return the recipe of the run from this checkout; None if this checkout lacks the recipe."""
    try:
        return library.load(evidence.run.recipe.name)
    except UsageError:
        return None


def _version(evidence: RunEvidence, recipe: RecipeFile | None) -> Version:
    if recipe is None:
        return "unknown"
    return "current" if evidence.run.recipe.sha256 == recipe.sha256 else "older"


def _contradictions(
    evidence: RunEvidence, recipe: RecipeFile | None
) -> Iterator[tuple[str, Location, str]]:
    """Yield the contradictions between the verdict and the recipe in this checkout.

    Nothing is yielded if the run used another version of the recipe.
    """
    if recipe is None or _version(evidence, recipe) != "current":
        return
    real = library.real_changes(recipe.recipe, recipe.card.card, evidence.run.recipe.changed)
    rows = {(row.metric, row.at): number for number, row in enumerate(evidence.verdict.rows)}
    for expected in recipe.recipe.expected:
        number = rows.get((expected.metric, expected.at))
        if number is None:
            yield ("evidence-contradicts", ("verdict", "rows"),
                   f"the metric {expected.metric} of the recipe is missing")
            continue
        row, (low, high) = evidence.verdict.rows[number], expected.bounds
        pairs = ((row.expected, expected.value), (row.low, low), (row.high, high))
        if not all(_same(one, other) for one, other in pairs) or not row.required:
            yield ("evidence-contradicts", ("verdict", "rows", number),
                   f"{row.metric}: the accepted values are not those of the recipe")
        if expected.unjudged is not None and row.outcome != "NO REFERENCE":
            yield ("evidence-contradicts", ("verdict", "rows", number, "outcome"),
                   f"is {row.outcome}, although the recipe does not judge {row.metric}")
        if real and row.outcome != "NO REFERENCE":
            yield ("evidence-contradicts", ("verdict", "rows", number, "outcome"),
                   f"is {row.outcome}, although the run changed {', '.join(real)}")


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-9)


def _notes(evidence: RunEvidence, version: Version, stale: bool) -> list[str]:
    notes = []
    if version == "older":
        notes.append("of another version of the recipe than this checkout has: shown as older")
    if version == "unknown":
        notes.append(f"this checkout has no recipe {evidence.run.recipe.name}: the site needs it")
    if stale:
        notes.append(f"of {evidence.day}, {age.STALE}: shown as stale")
    if evidence.sha256 is None:
        notes.append(f"without a hash, but listed in {RESULTS}/{content.LISTED}")
    return notes
