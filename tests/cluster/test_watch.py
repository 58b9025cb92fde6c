"""Test the status of submitted runs, from the files of a job and answers of a fake Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, Place, make, warn, write_program
from refusals import refused
from trimaran.cluster import jobs, watch
from trimaran.cluster.watch import Watched
from trimaran.errors import UsageError
from trimaran.site_file import Cluster


@pytest.fixture(autouse=True)
def on_path(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    (place.out / "job/ids").write_text("7\n")


def known(place: Place, text: str) -> None:
    """Set the jobs that the stand-in for squeue prints: lines of number, state and reason."""
    (place.root / "bin/queue").write_text(text)


def stands(place: Place) -> Watched:
    [found] = watch.look([place.out])
    return found


def test_why_a_job_was_refused_outlives_what_slurm_knows_of_it(place: Place) -> None:
    (place.root / "data/dataset.json").write_text("[]")
    place.run()
    for text in ("7|FAILED|NonZeroExitCode\n", ""):
        known(place, text)
        found = stands(place)
        assert found.state == "failed"
        assert str(place.root / "data") in found.reason


def test_what_the_script_refuses_before_it_looks_at_nodes_outlives_too(place: Place) -> None:
    (place.root / "bin/srun").write_text("#!/bin/sh\necho none\n")
    place.run()
    assert stands(place).reason == "srun has no --mpi=pmi2 here"


def test_a_refused_link_of_a_chain_does_not_go_on(place: Place) -> None:
    warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75")
    data = place.root / "data/dataset.json"
    data.rename(place.root / "moved")
    place.run()
    assert (stands(place).state, stands(place).links) == ("failed", 1)
    (place.root / "moved").rename(data)
    place.run("exit 4")
    assert (stands(place).state, stands(place).links, stands(place).reason) == ("failed", 2, "")


def test_what_srun_says_is_the_reason_where_no_node_has_one(place: Place) -> None:
    (place.root / "bin/srun").write_text(
        "#!/bin/sh\ncase $* in *--mpi=list*) echo pmi2; exit ;; esac\n"
        "echo 'srun: error: Unable to create step: Nodes are busy' >&2\nexit 1\n"
    )
    place.run()
    assert stands(place).reason == "srun: error: Unable to create step: Nodes are busy"


def test_a_job_that_left_nothing_is_lost_when_slurm_has_forgotten_it(place: Place) -> None:
    assert (stands(place).state, stands(place).job) == ("lost", "7")
    known(place, "7|CANCELLED|None\n")
    assert (stands(place).state, stands(place).reason) == ("cancelled", "cancelled")


def test_a_job_that_the_batch_system_refused_was_never_queued(place: Place) -> None:
    (place.out / "job/ids").unlink()
    assert (stands(place).state, stands(place).job) == ("lost", "-")
    assert "`trimaran resume`" in stands(place).reason


@pytest.mark.parametrize(
    ("state", "after", "reason"),
    [
        ("TIMEOUT", "epoch 1/4", "timeout"),
        ("OUT_OF_MEMORY", "", "out of memory"),
        ("NODE_FAIL", "", "node fail"),
        ("FAILED", "", "failed"),
        ("FAILED", "Bus error", "Bus error"),
        ("FAILED", "job.sh: n2: the image is not there\nbye", "job.sh: n2: the image is not there"),
    ],
)
def test_the_reason_of_an_end_is_no_line_that_came_before_it(
    place: Place, state: str, after: str, reason: str
) -> None:
    (place.out / "log.txt").write_text(
        "job.sh: exit status 75: the time limit came: it goes on from step 12\n"
        f"job.sh: job 7, link 2: srun --export=ALL /bin/sh job/job.sh task\n{after}\n"
    )
    known(place, f"7|{state}|None\n")
    assert (stands(place).state, stands(place).reason) == ("failed", reason)


def test_one_damaged_run_and_a_silent_batch_system_hide_no_other(
    place: Place, tmp_path: Path
) -> None:
    damaged = make(tmp_path / "damaged")
    (damaged.out / "run.json").write_text("{")
    elsewhere = make(tmp_path / "elsewhere", cluster=Cluster(scheduler="pbs"))
    (elsewhere.out / "job/ids").write_text("7.server\n")
    known(place, "7|PENDING|Priority\n")
    rows = watch.overview([damaged.out, place.out, elsewhere.out])
    assert [row.state for row in rows] == ["unknown", "pending", "unknown"]
    assert "run.json" in rows[0].reason
    assert "qstat" in rows[2].reason
    with pytest.raises(UsageError, match=r"run\.json"):
        watch.look([damaged.out])


def test_a_batch_system_that_nobody_knows_is_told(place: Place) -> None:
    file = place.out / "run.json"
    file.write_text(file.read_text().replace('"slurm"', '"oar"'))
    with refused("file-invalid", "run.json: job", "'oar'", kind=UsageError):
        watch.look([place.out])
    with refused("file-invalid", "'oar'", kind=UsageError):
        watch.follow(place.out, print, on=True)


@pytest.mark.parametrize("answer", ["", "7|COMPLETED|None"])
def test_a_job_that_ends_while_the_batch_system_is_asked_has_completed(
    place: Place, answer: str
) -> None:
    place.run()
    end = place.out / "job/link-0001.end.json"
    kept = end.rename(place.root / "end")
    write_program(place.root / "bin/squeue", f"#!/bin/sh\nmv '{kept}' '{end}'\necho '{answer}'\n")
    [row] = watch.overview([place.out])
    assert (row.state, row.reason) == ("completed", "")
    end.rename(kept)
    assert stands(place).state == "completed"
    end.rename(kept)
    with refused("run-completed", str(place.out), kind=UsageError):
        jobs.again(place.out)


@pytest.mark.parametrize("left", ["", "exit 75"])
def test_what_was_cancelled_here_stays_cancelled(place: Place, left: str) -> None:
    if left:
        warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; {left}")
    known(place, "7|PENDING|Priority\n")
    assert jobs.cancel([place.out]) == ["7"]
    known(place, "")
    assert (stands(place).state, stands(place).reason) == ("cancelled", "cancelled")
    (place.out / "job/ids").write_text("7\n8\n")
    known(place, "8|PENDING|Priority\n")
    assert (stands(place).state, stands(place).reason) == ("pending", "Priority")
