"""Test jobs that are queued again, with stand-ins for the commands of each batch system."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, SRUN, Place, make, noting, shaped, warn, write_program
from trimaran.cluster import script
from trimaran.run import job_chain, run_directory
from trimaran.site_file import Cluster

STOPPED = f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75"


def reason(place: Place) -> str:
    """Return why the last start of the run by the batch system ended."""
    end = job_chain.read(place.out)[-1].end
    assert end is not None
    return end.reason


def words(place: Place, program: str) -> list[str]:
    """Return the arguments of all calls of the stand-in for `program`."""
    return (place.root / f"bin/{program}.argv").read_text().splitlines()


@pytest.mark.parametrize("accepts", [True, False])
def test_where_slurm_requeues_nothing_another_job_follows(place: Place, accepts: bool) -> None:
    write_program(place.root / "bin/scontrol", "#!/bin/sh\nexit 1\n")
    write_program(
        place.root / "bin/sbatch", noting(said="8") if accepts else "#!/bin/sh\nexit 1\n"
    )
    (place.out / "job/ids").write_text("7\n")
    code, said = warn(place, STOPPED)
    if not accepts:
        assert code == 75, said
        assert "Slurm" in reason(place)
        assert "trimaran resume" in reason(place)
        return
    assert code == 0, said
    assert words(place, "sbatch") == [
        "--parsable", "--dependency=afterany:7", f"--chdir={place.out}", "job/job.sh"
    ]
    assert (place.out / "job/ids").read_text() == "7\n8\n"
    code, said = place.run(number="8")
    assert code == 0, said
    assert place.recorded("argv")[-1] == "--resume=auto"
    assert [link.job for link in job_chain.read(place.out)] == ["7", "8"]


@pytest.mark.parametrize(
    ("scheduler", "asks"), [("slurm", "scontrol"), ("pbs", "qsub"), ("lsf", "brequeue")]
)
def test_what_was_cancelled_after_its_warning_is_not_queued_again(
    tmp_path: Path, scheduler: str, asks: str
) -> None:
    place = make(tmp_path / "p", cluster=Cluster.model_validate({"scheduler": scheduler}))
    write_program(place.root / f"bin/{asks}", noting())
    (place.out / "job/cancelled").write_text("70\n7\n")
    code, said = warn(place, STOPPED)
    assert code == 75, said
    assert reason(place) == "cancelled: trimaran resume goes on from step 12"
    asked = place.root / f"bin/{asks}.argv"
    assert not asked.exists() or "requeue" not in asked.read_text()


def test_a_job_that_its_batch_system_ends_and_queues_by_itself_ends_without_progress(
    place: Place,
) -> None:
    """After two starts without progress, a job starts no rank, until the user resumes the run.

    Examples are preemption by Slurm without grace time, and a node that fails repeatedly.
    """
    for _ in range(2):
        place.run("exit 9")
    assert place.run(f"{CHECKPOINT.format(step=8)}; exit 9")[0] == 75
    refused = job_chain.refusal(place.out)
    assert refused is not None
    assert refused.reason.startswith("no progress: ")
    assert "step 0" in refused.reason
    code, said = place.run(number="8")  # trimaran resume
    assert code == 0, said


def test_progress_in_either_of_two_links_lets_the_next_one_begin(place: Place) -> None:
    for step in (8, 16, 24):
        place.run(f"{CHECKPOINT.format(step=step)}; exit 9")
        place.run("exit 9")
    assert [link.step for link in job_chain.read(place.out)] == [0, 8, 8, 16, 16, 24]


def test_a_warning_while_nodes_are_looked_at_anew_is_not_lost(tmp_path: Path) -> None:
    """The warning before the time limit is not lost while a job searches for usable nodes.

    After the loss of a node, this search takes up to half a minute.
    """
    place = make(tmp_path / "p")
    place.install(script.render(shaped(place.job, min_nodes=1)))
    write_program(place.root / "bin/scontrol", '#!/bin/sh\ncase $1 in\n'
                  'show) printf "n1\\nn2\\n" ;;\n*) touch "${0%/*}/requeued" ;;\nesac\n')
    write_program(place.root / "bin/srun", SRUN.replace(
        "for word; do", 'case $* in *--nodelist=n2*) '
        'kill -USR1 "$(ps -o ppid= "$PPID")"; exit 1 ;; esac\nfor word; do', 1,
    ))
    code, said = place.run(f"{CHECKPOINT.format(step=9)}; exit 69")
    assert code == 0, said
    assert place.requeued
    assert reason(place) == "the time limit came: it goes on from step 9"


def test_who_was_told_to_end_says_so(place: Place) -> None:
    act = f"trap '{CHECKPOINT.format(step=12)}; exit 75' TERM; touch up; sleep 9 & wait"
    with place.start(act, "7") as child:
        until = time.monotonic() + 30
        while not (place.out / "up").exists() and time.monotonic() < until:
            time.sleep(0.05)
        child.terminate()
        child.communicate(timeout=60)
    assert child.returncode == 75
    assert reason(place) == "it was told to end (SIGTERM)"


def test_a_time_limit_before_a_rank_was_started_is_told(place: Place) -> None:
    write_program(place.root / "bin/srun", SRUN.replace(
        "for word; do", 'case " $* " in *" node "*) kill -USR1 "$PPID" ;; esac\nfor word; do', 1
    ))
    code, said = place.run()
    assert code == 75, said
    assert reason(place).startswith("the time limit ")
    assert not (place.root / "bin/argv").exists()
    assert not place.requeued


def test_a_job_of_pbs_keeps_the_time_itself_and_queues_another(tmp_path: Path) -> None:
    place = make(tmp_path / "p", cluster=Cluster(scheduler="pbs", signal_seconds=5))
    write_program(place.root / "bin/qsub", noting(said="8.server"))
    short = shaped(place.job, walltime="00:00:10")  # the script is warned after 5 s
    place.install(script.render(short))
    code, said = place.run(f"sleep 3; {STOPPED}", number="7.server")
    assert code == 0, said
    assert reason(place) == "the time limit came: it goes on from step 12"
    assert words(place, "qsub") == ["-W", "depend=afterany:7.server", "job/job.sh"]
    assert (place.out / "job/ids").read_text() == "8.server\n"
    place.install(script.render(place.job))
    code, said = place.run(number="8.server")
    assert code == 0, said
    assert place.recorded("argv")[-1] == "--resume=auto"
    assert run_directory.load(place.out).status == "completed"


def test_a_job_of_lsf_is_queued_again_with_its_number(tmp_path: Path) -> None:
    place = make(tmp_path / "p", cluster=Cluster(scheduler="lsf"))
    write_program(place.root / "bin/brequeue", noting())
    code, said = warn(place, STOPPED)
    assert code == 0, said
    assert words(place, "brequeue") == ["-r", "7"]
    code, said = place.run()
    assert code == 0, said
    assert place.recorded("argv")[-1] == "--resume=auto"
    assert [link.job for link in job_chain.read(place.out)] == ["7", "7"]


@pytest.mark.parametrize(
    ("scheduler", "command", "runs", "gone"),
    [("pbs", "qstat", "    job_state = R", "    job_state = F"), ("lsf", "bjobs", "RUN", "EXIT")],
)
def test_pbs_and_lsf_say_whether_another_job_has_the_run(
    tmp_path: Path, scheduler: str, command: str, runs: str, gone: str
) -> None:
    place = make(tmp_path / "p", cluster=Cluster.model_validate({"scheduler": scheduler}))
    place.run("exit 1", number="7")
    (place.out / "job/link-0001.end.json").unlink()
    write_program(place.root / "bin" / command, noting(said=runs))
    code, said = place.run(number="8")
    assert code == 73
    assert "job 7 runs in" in said
    assert "7" in words(place, command)
    write_program(place.root / "bin" / command, noting(said=gone))
    code, said = place.run(number="8")
    assert code == 0, said
