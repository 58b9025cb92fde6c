"""Tests of job chains: their files must agree with each other and with the run."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from finished import chain
from refusals import refused
from trimaran import cli
from trimaran.errors import RunError, TrimaranError, UsageError
from trimaran.report import report
from trimaran.run import job_chain, run_directory

FIRST, LAST = "job/link-0001", "job/link-0002"
Change = Callable[[Path], object]


@pytest.fixture
def run(checkout: Path, own_place: Path) -> Path:
    """Create a run of two jobs with the verdict PASS, and return its directory."""
    chain(own_place / "run", checkout)
    return own_place / "run"


def sets(name: str, **values: object) -> Change:
    """Return a function that changes values in the file `name`.json of a run directory."""

    def change(run: Path) -> None:
        file = run / f"{name}.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **values}))

    return change


def more_nodes(run: Path) -> None:
    file = run / f"{FIRST}.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "hosts": content["hosts"] * 2}))


def moved(old: str, new: str) -> Change:
    return lambda run: (run / old).rename(run / new)


def written(name: str, text: str) -> Change:
    return lambda run: (run / name).write_text(text)


def removed(name: str) -> Change:
    return lambda run: (run / name).unlink()


def without_links(run: Path) -> None:
    for file in run.glob("job/link-*"):
        file.unlink()
    sets("run", status="completed", exit_status=0)(run)


DAMAGED: dict[str, tuple[str, Change]] = {
    "another number": ("link 3", sets(FIRST, number=3)),
    "number as text": ("valid integer", sets(FIRST, number="1")),
    "number as truth": ("valid integer", sets(FIRST, number=True)),
    "number of another file": ("link 2", lambda run: (
        (run / f"{FIRST}.json").write_text((run / f"{LAST}.json").read_text())
    )),
    "negative step": (r"link-0001\.json .* 0", sets(FIRST, step=-1)),
    "step as text": ("valid integer", sets(LAST, step="2")),
    "step with a fraction": ("valid integer", sets(LAST, step=1.5)),
    "enormous step": ("less than or equal to", sets(LAST, step=10**30)),
    "negative step of an end": (r"link-0001\.end\.json .* 0", sets(f"{FIRST}.end", step=-5)),
    "text as exit status": ("valid integer", sets(f"{LAST}.end", exit_status="0")),
    "truth as exit status": ("valid integer", sets(f"{LAST}.end", exit_status=False)),
    "no status of a shell": ("less than or equal to 255", sets(f"{LAST}.end", exit_status=256)),
    "negative exit status": ("greater than or equal to 0", sets(f"{LAST}.end", exit_status=-9)),
    "a link less": (r"link-0001\.json ", removed(f"{FIRST}.json")),
    "a gap": (r"link-0002\.json ",
              moved(f"{LAST}.json", "job/link-0003.json")),
    "no JSON": ("Invalid JSON", written(f"{FIRST}.json", "{")),
    "an end that is no JSON": ("Invalid JSON", written(f"{LAST}.end.json", "[" * 9000)),
    "no hosts": ("at least 1 item", sets(FIRST, hosts=[])),
}


@pytest.mark.parametrize(("message", "change"), DAMAGED.values(), ids=DAMAGED)
def test_a_file_that_cannot_be_is_named_as_damaged(
    run: Path, message: str, change: Change
) -> None:
    change(run)
    with pytest.raises(UsageError, match=message):
        report.write(run)
    assert not (run / "verdict.json").exists()


DISAGREE: dict[str, tuple[str, Change]] = {
    "a step after the last": (r"link-0002\.json: .* 4, .* step 3", sets(LAST, step=4)),
    "an end after the last step": (r"link-0001\.json: .* 999, ", sets(f"{FIRST}.end", step=999)),
    "another job": (r"link-0001\.json: .* 40, which job/ids ", sets(FIRST, job="40")),
    "no jobs noted": (r"link-0001\.json: .* 41, which job/ids ", removed("job/ids")),
    "an end without files": (
        r"link-0002\.end\.json: .* metrics\.jsonl and result\.json",
        sets(f"{LAST}.end", files={}),
    ),
    "an end with half of the files": (r"0002\.end\.json: .* of metrics\.jsonl is", lambda run: sets(
        f"{LAST}.end", files={"result.json": run_directory.hashes(run)["result.json"]})(run)),
    "an end with other files": (r"metrics\.jsonl: the SHA-256", lambda run: sets(
        f"{LAST}.end", files={**run_directory.hashes(run), "metrics.jsonl": "0" * 64})(run)),
    "another script": (r"job/job\.sh: the SHA-256", written("job/job.sh", "#!/bin/sh\nexit\n")),
    "other functions": (
        r"job/functions\.sh: the SHA-256", written("job/functions.sh", "main() { exit; }\n")
    ),
    "no functions": (r"job/functions\.sh cannot be read", removed("job/functions.sh")),
    "no script": (r"job/job\.sh cannot be read", removed("job/job.sh")),
    "more nodes": ("4 nodes, .* 2", more_nodes),
    "an end before its beginning": (
        "started 2026-01-01 01:00:00", sets(f"{FIRST}.end", ended="2026-01-01T00:30:00Z")
    ),
    "no link at all": (r"run\.json: .* job .*link", without_links),
}


@pytest.mark.parametrize(("message", "change"), DISAGREE.values(), ids=DISAGREE)
def test_what_does_not_fit_the_run_is_named(run: Path, message: str, change: Change) -> None:
    change(run)
    with refused("run-inconsistent", run, kind=RunError) as caught:
        report.write(run)
    assert re.search(message, caught.value.message)
    assert not (run / "verdict.json").exists()


@pytest.mark.parametrize("change", [
    written("job/ids", "41.server\n42.server\n"), written("job/ids", "41;cluster\n42;cluster\n"),
    written("job/ids", "Welcome to the machine\n41\n\n42;a\n"), lambda run: None,
], ids=["with a server", "with a cluster", "with a greeting", "as it is"])
def test_numbers_as_older_versions_and_other_systems_note_them_are_those_of_the_jobs(
    run: Path, change: Change
) -> None:
    change(run)
    assert report.write(run)[1].outcome == "PASS"
    assert "job.sh is" in (run / "report.md").read_text()


def test_a_link_that_was_killed_among_its_nodes_leaves_a_gap_of_its_own(run: Path) -> None:
    last = json.loads((run / f"{LAST}.json").read_text())
    moved(f"{LAST}.end.json", "job/link-0003.end.json")(run)
    (run / "job/link-0003.json").write_text(json.dumps({**last, "number": 3}))
    (run / f"{LAST}.json").write_text("")
    assert report.write(run)[1].outcome == "PASS"
    assert [link.number for link in job_chain.read(run)] == [1, 3]


def test_checkpoints_that_were_removed_between_two_jobs_are_told(run: Path) -> None:
    sets(LAST, step=1)(run)
    assert report.write(run)[1].outcome == "PASS"
    note = "link 2 began at step 1, but the previous link ended at step 2"
    assert note in (run / "report.md").read_text()


@pytest.mark.parametrize("words", ["report {run}", "compare {run} {run}/../sound", "status {run}"])
def test_every_command_that_reads_a_chain_refuses_a_damaged_one(run: Path, words: str) -> None:
    shutil.copytree(run, run.with_name("sound"))
    sets(FIRST, number=3)(run)
    done = CliRunner().invoke(cli.app, words.format(run=run).split())
    assert isinstance(done.exception, TrimaranError), done.output
    assert "link-0001.json" in str(done.exception)
