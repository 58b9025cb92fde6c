"""Commands for published results: `evidence add` and `evidence check`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimaran.cli import common
from trimaran.cli.common import Json, command, say, terminal
from trimaran.cli.runs import RunDirectory, refuse_folder
from trimaran.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from trimaran.evidence.check import Checked

app = typer.Typer(
    help="Hand in the result of a run, and check results that others hand in.",
    epilog="Example: trimaran evidence check site/results/resnet-imagenet",
    no_args_is_help=True, rich_markup_mode=None,
)
common.app.add_typer(app, name="evidence")


@command(app, "add")
def evidence_add(
    run_dir: RunDirectory,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to write; by default below site/results of the "
                                          "checkout."),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(metavar="LABEL", help="Description of the machine in the name of the file; by "
                                           "default from its hardware."),
    ] = None,
) -> None:
    """Write the evidence of a finished run, to hand it in.

    Names of hosts and users, folders, addresses and settings of the site file are left out or
    replaced by [host], [user], [path] and [address]. The evidence keeps the recipe with its hash,
    the revision, the digest of the image, the command in the container, and the versions. A hash of
    the content shows later edits. The file is
    site/results/APP/RECIPE/DATE-LABEL.json; an existing file is never overwritten.

    Example: trimaran evidence add runs/resnet-imagenet/cpu-quickstart/20261121-120000

    Example: trimaran evidence add runs/mine --label epyc-2core
    """
    from trimaran.evidence import writing
    from trimaran.report import report

    if to is not None and label is not None:
        raise UsageError("--to and --label exclude each other: both determine the name of the file",
                         code="arguments-conflict", hint="leave one of them out")
    refuse_folder(run_dir, "evidence of its own")
    record, verdict, _ = report.write_if_allowed(run_dir, terminal())
    path = writing.add(run_dir, record, verdict, to=to, label=label)
    terminal().note(f"{record.recipe.name}: {verdict.outcome}; read the file, commit it, and open"
                    " a pull request")
    say(path)


@command(app, "check")
def evidence_check(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Files of evidence, or folders of them.",
                       show_default=False),
    ],
    as_json: Json = False,
) -> None:
    """Check evidence of runs before it is published.

    A file is refused if its content was edited after it was written, if it contains a path or the
    name or address of a user or host, if its schema is unknown, or if a value contradicts the
    verdict. Evidence of another version of the recipe is accepted and named older, and evidence
    that is older than 12 months is accepted and named stale. Exits with 2 when a file is refused.

    Example: trimaran evidence check site/results/resnet-imagenet

    Example: trimaran evidence check new.json --json
    """
    import datetime as dt

    from trimaran.evidence import check as checks
    from trimaran.evidence import content, privacy

    today, names, known = dt.date.today(), privacy.names_here(), content.listed()
    found = [checks.check(path, today, names, known) for path in checks.found(places)]
    refused = [one for one in found if one.faults]
    if as_json:
        say(json.dumps([_as_json(one) for one in found], indent=2))
    else:
        for one in found:
            _show(one)
        say(f"{len(found) - len(refused)} of {len(found)} files accepted")
    if refused:
        raise typer.Exit(ExitCode.USAGE)


def _show(one: Checked) -> None:
    """Print one line for an accepted file, and its errors for a refused file."""
    from trimaran.cli.terminal import show_error
    from trimaran.evidence.check import AGAIN

    for fault in one.faults:
        show_error(UsageError(fault.text(one.path), code=fault.code))
    if one.faults:
        read = any(fault.code != "file-missing" for fault in one.faults)
        say(f"{one.path}: refused" + (f" ({AGAIN})" if read else ""))
        return
    if one.evidence is not None:
        run, verdict = one.evidence.run, one.evidence.verdict
        say("; ".join([f"{one.path}: accepted: {run.recipe.name}, {verdict.outcome}", *one.notes]))


def _as_json(one: Checked) -> dict[str, Any]:
    evidence = one.evidence
    return {
        "file": str(one.path), "accepted": not one.faults,
        "recipe": evidence and evidence.run.recipe.name,
        "outcome": evidence and evidence.verdict.outcome,
        "day": evidence and evidence.day.isoformat(),
        "version": one.version, "stale": one.stale, "notes": list(one.notes),
        "faults": [
            {"code": fault.code, "key": fault.key, "line": fault.line, "problem": fault.problem}
            for fault in one.faults
        ],
    }
