"""The process that queues a job is killed around the moment when the batch system accepts it.

Slurm is a stand-in that keeps a list of jobs. The tool is a separate process, and the commands
that it has started kill it. tests/integration/test_cluster.py uses a real Slurm.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jobplaces import Place, make, write_program
from trimaran import cli
from trimaran.cluster import jobs, watch
from trimaran.errors import RunError, TrimaranError, UsageError
from trimaran.site_file import Cluster

SBATCH = r"""#!/bin/sh
here=${0%/*}
name=$(sed -nE 's/^#SBATCH --job-name=//p' job/job.sh)
. "$here/before"
number=$(($(wc -l <"$here/jobs") + 101))
printf '%s|%s|PENDING|Priority\n' "$number" "$name" >>"$here/jobs"
. "$here/after"
echo "$number"
"""
SQUEUE = r"""#!/bin/sh
name=
for word; do case $word in --name=*) name=${word#*=} ;; esac; done
if [ -n "$name" ]; then awk -F'|' -v "name=$name" '$2 == name {print $1 "|" $2}' "${0%/*}/jobs"
else awk -F'|' '{print $1 "|" $3 "|" $4}' "${0%/*}/jobs"; fi
"""
SCANCEL = r"""#!/bin/sh
sed -i "s/^\($1|.*\)PENDING/\1CANCELLED/" "${0%/*}/jobs"
"""
KILL = 'kill -{signal} "$PPID"; sleep 0.5\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """Create a run whose first job has ended, on a login node whose batch system accepts jobs."""
    place = make(tmp_path / "a place", cluster=Cluster(mpi="pmi2"))
    programs = place.root / "bin"
    for name, text in (("sbatch", SBATCH), ("squeue", SQUEUE), ("scancel", SCANCEL)):
        write_program(programs / name, text)
    for name in ("before", "after", "jobs"):
        (programs / name).touch()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return place


def tool(place: Place, *words: str) -> subprocess.Popen[str]:
    """Start the tool as a separate process."""
    return subprocess.Popen(
        [sys.executable, "-c", "from trimaran.cli import main; main()", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ},
    )


def ask(*words: object) -> Any:
    return CliRunner().invoke(cli.app, [str(word) for word in words], env={"COLUMNS": "200"})


def listed(place: Place) -> list[list[str]]:
    """Return number, name, state and reason of each job that the Slurm stand-in has in its list."""
    return [line.split("|") for line in (place.root / "bin/jobs").read_text().splitlines()]


def wait_for_jobs(place: Place) -> None:
    """Wait until the batch system has a job, and until the command that queued it has ended."""
    end = time.monotonic() + 60
    while not listed(place):
        assert time.monotonic() < end
        time.sleep(0.1)
    time.sleep(1.5)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("sent", ["INT", "TERM", "HUP", "KILL"])
def test_the_job_is_found_by_status_resume_and_cancel(
    place: Place, sent: str, moment: str
) -> None:
    (place.root / "bin" / moment).write_text(KILL.format(signal=sent))
    with tool(place, "resume", str(place.out)) as child:
        _, said = child.communicate(timeout=200)
    if sent == "KILL":
        assert child.returncode == -signal.SIGKILL
        wait_for_jobs(place)  # sbatch outlives it
    else:
        assert child.returncode == 130
        assert "interrupted:" in said
        assert "job 101 " in said
        assert f"`trimaran cancel {place.out}`" in said
        assert jobs.numbers(place.out) == ["101"]
    (place.root / "bin" / moment).write_text("")
    [row] = watch.look([place.out])
    assert (row.job, row.state, row.reason) == ("101", "pending", "Priority")
    again = ask("resume", place.out)
    assert again.exit_code != 0
    assert isinstance(again.exception, UsageError)
    assert again.exception.code == "job-active"
    assert "job 101 " in again.exception.message
    assert len(listed(place)) == 1
    done = ask("cancel", place.out)
    assert done.stdout == "job 101 cancelled\n", done.output
    assert listed(place)[0][2] == "CANCELLED"
    [row] = watch.look([place.out])
    assert (row.job, row.state) == ("101", "cancelled")
    assert ask("resume", place.out).exit_code == 0  # now that it has ended
    assert len(listed(place)) == 2


def test_nobody_resumes_while_the_command_that_queues_is_still_at_it(place: Place) -> None:
    (place.root / "bin/before").write_text(
        'kill -KILL "$PPID"\nwhile [ ! -e "$here/go" ]; do sleep 0.1; done\n'
    )
    with tool(place, "resume", str(place.out)) as child:
        child.wait(timeout=200)
    again = ask("resume", place.out)
    assert isinstance(again.exception, TrimaranError)
    assert str(place.out) in again.exception.message
    assert again.exception.code != "job-active"  # the lock of the run refuses it
    (place.root / "bin/go").touch()
    wait_for_jobs(place)
    error = ask("resume", place.out).exception
    assert isinstance(error, UsageError)
    assert error.code == "job-active"
    assert "job 101 " in error.message
    assert len(listed(place)) == 1


def test_a_second_signal_does_not_wait_for_the_batch_system(place: Place) -> None:
    twice = 'kill -INT "$PPID"; sleep 0.5; kill -INT "$PPID"; sleep 20; touch "$here/late"'
    (place.root / "bin/after").write_text(f"{twice}\n")
    with tool(place, "resume", str(place.out)) as child:
        _, said = child.communicate(timeout=200)
    assert not (place.root / "bin/late").exists()
    assert child.returncode == 130
    assert "interrupted:" in said
    assert f"`trimaran status {place.out}`" in said  # no number is known yet
    assert [row.job for row in watch.look([place.out])] == ["101"]


def test_killed_before_anything_was_queued_it_can_be_resumed(place: Place) -> None:
    (place.out / "job/queueing").touch()
    [row] = watch.look([place.out])
    assert (row.state, row.job) == ("lost", "-")
    assert "`trimaran resume`" in row.reason
    assert ask("resume", place.out).exit_code == 0
    assert jobs.numbers(place.out) == ["101"]
    assert not (place.out / "job/queueing").exists()


def test_a_job_that_has_ended_meanwhile_has_told_of_itself(place: Place) -> None:
    (place.out / "job/queueing").touch()
    code, said = place.run(number="101")
    assert code == 0, said
    assert jobs.numbers(place.out) == ["101"]
    [row] = watch.look([place.out])
    assert (row.job, row.state) == ("101", "completed")


@pytest.mark.parametrize("end", ["exit 1", "echo what; exit 0", "sleep 60"])
def test_a_job_that_is_there_is_queued_whatever_the_command_says(
    place: Place, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that exists counts as queued, although `sbatch` reports a failure.

    A real sbatch can fail in this way with "Socket timed out on send/recv operation".
    """
    monkeypatch.setattr("trimaran.cluster.scheduler.ANSWER_SECONDS", 2.0)
    (place.root / "bin/after").write_text(f"{end}\n")
    assert jobs.again(place.out).job == "101"
    assert jobs.numbers(place.out) == ["101"]
    assert not (place.out / "job/queueing").exists()


@pytest.mark.parametrize(
    ("end", "error_code", "named"),
    [("exit 1", "job-refused", "sbatch"), ("echo 12 3; exit 0", "job-number-missing", "12 3"),
     ("sleep 60", None, "2 s")],
)
def test_a_job_that_ended_long_ago_is_not_taken_for_a_new_one(
    place: Place, end: str, error_code: str | None, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimaran.cluster.scheduler.ANSWER_SECONDS", 2.0)
    (place.root / "bin/jobs").write_text(f"100|{place.job.name}|CANCELLED|None\n")
    (place.root / "bin/before").write_text(f"{end}\n")
    done = ask("resume", place.out)
    assert isinstance(done.exception, RunError)
    assert error_code is None or done.exception.code == error_code
    assert named in done.exception.message
    assert "sbatch" in done.exception.message
    assert len(listed(place)) == 1


def test_all_jobs_of_a_run_are_ended_the_newest_first(place: Place) -> None:
    name = place.job.name
    (place.root / "bin/jobs").write_text(
        f"8|{name}|PENDING|Priority\n10|other|PENDING|None\n9|{name}|PENDING|Priority\n"
    )
    (place.out / "job/ids").write_text("9\n")
    assert jobs.cancel([place.out]) == ["9", "8"]
    assert [row[2] for row in listed(place)] == ["CANCELLED", "PENDING", "CANCELLED"]


def test_the_name_of_a_run_is_its_own(tmp_path: Path) -> None:
    names = {make(tmp_path / one).job.name for one in ("a", "b")}
    assert len(names) == 2
    assert all(one.startswith("resnet-imagenet/cpu-2node-smoke-") for one in names)
