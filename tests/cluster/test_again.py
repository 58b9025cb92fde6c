"""A job that is queued once more, by each batch system: their commands are stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, SRUN, Place, make, noting, shaped, warn, write_program
from trimaran.cluster import script
from trimaran.cluster.script import SCRIPT
from trimaran.runs import links, rundir
from trimaran.sites import Cluster

STOPPED = f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75"


def reason(place: Place) -> str:
    """Return why the last link ended."""
    end = links.read(place.out)[-1].end
    assert end is not None
    return end.reason


def words(place: Place, program: str) -> list[str]:
    """Return the words that a stand-in was given."""
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
        assert "Slurm does not take the job once more: trimaran resume" in reason(place)
        return
    assert code == 0, said
    assert words(place, "sbatch") == [
        "--parsable", "--dependency=afterany:7", f"--chdir={place.out}", "job/job.sh"
    ]
    assert (place.out / "job/ids").read_text() == "7\n8\n"
    code, said = place.run(number="8")
    assert code == 0, said
    assert place.recorded("argv")[-1] == "--resume=auto"
    assert [link.job for link in links.read(place.out)] == ["7", "8"]


def test_a_time_limit_before_a_rank_was_started_is_told(place: Place) -> None:
    write_program(place.root / "bin/srun", SRUN.replace(
        "for word; do", 'case " $* " in *" node "*) kill -USR1 "$PPID" ;; esac\nfor word; do', 1
    ))
    code, said = place.run()
    assert code == 75, said
    assert "the time limit came before a rank was started" in reason(place)
    assert not (place.root / "bin/argv").exists()
    assert not place.requeued


def test_a_job_of_pbs_keeps_the_time_itself_and_queues_another(tmp_path: Path) -> None:
    place = make(tmp_path / "p", cluster=Cluster(scheduler="pbs", signal_seconds=5))
    write_program(place.root / "bin/qsub", noting(said="8.server"))
    short = shaped(place.job, walltime="00:00:10")  # the script is told after 5 s of it
    (place.out / SCRIPT).write_text(script.render(short))
    code, said = place.run(f"sleep 3; {STOPPED}", number="7.server")
    assert code == 0, said
    assert reason(place) == "the time limit came: it goes on from step 12"
    assert words(place, "qsub") == ["-W", "depend=afterany:7.server", "job/job.sh"]
    assert (place.out / "job/ids").read_text() == "8.server\n"
    (place.out / SCRIPT).write_text(script.render(place.job))
    code, said = place.run(number="8.server")
    assert code == 0, said
    assert place.recorded("argv")[-1] == "--resume=auto"
    assert rundir.load(place.out).status == "completed"


def test_a_job_of_lsf_is_queued_again_with_its_number(tmp_path: Path) -> None:
    place = make(tmp_path / "p", cluster=Cluster(scheduler="lsf"))
    write_program(place.root / "bin/brequeue", noting())
    code, said = warn(place, STOPPED)
    assert code == 0, said
    assert words(place, "brequeue") == ["-r", "7"]
    code, said = place.run()
    assert code == 0, said
    assert place.recorded("argv")[-1] == "--resume=auto"
    assert [link.job for link in links.read(place.out)] == ["7", "7"]


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
