"""Test the signal that warns a job of its end, at different moments of the job.

The batch system sends the signal only once. All ranks get a warning that the time limit is
near, even if they are just being started. If the job gets SIGTERM before the start of the
ranks, it starts none.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, MPS, RANKS, SRUN, Place, make, sharing, write_program
from trimaran.run import job_chain
from trimaran.site_file import Cluster

STEP = SRUN.replace("for word; do", "SLURM_STEP_ID=5; export SLURM_STEP_ID\nfor word; do", 1)
SIGNALLED = 'case " $* " in *" task "*) kill -USR1 "$PPID"; sleep 1 ;; esac\n'
"""First line of a stand-in for srun; it sends the job the signal of its time limit, SIGUSR1.

The signal comes while srun starts the ranks.
"""

SCANCEL = """#!/bin/sh
echo "$*" >>"$0.argv"
if [ "$*" = "--signal=URG 7.5" ] && [ -e listening ]; then touch told; fi
"""
"""Stand-in for `scancel`, which signals the ranks of step 5 of job 7.

A rank creates the file `listening` when it can handle the signal. If the file exists, the stand-in
creates the file `told`, which stands for the signal.
"""

LISTENS = f"""
sleep {{late}}
touch listening
turns=0
while [ ! -e told ] && [ "$turns" -lt 100 ]; do sleep 0.2; turns=$((turns + 1)); done
[ -e told ] || exit 1
{CHECKPOINT.format(step=12)}
exit 75
"""


def ended(place: Place) -> str:
    """Return why the run ended after the batch system had started it for the last time."""
    end = job_chain.read(place.out)[-1].end
    assert end is not None
    return end.reason


@pytest.fixture
def slurm(place: Place) -> Place:
    """Create a job whose ranks can be signalled by the stand-ins for Slurm's commands."""
    write_program(place.root / "bin/srun", STEP)
    write_program(place.root / "bin/scancel", SCANCEL)
    return place


@pytest.mark.parametrize("late", [0, 3])
@pytest.mark.parametrize("older", [None, "4"])
def test_ranks_that_are_being_started_are_told_when_they_listen(
    slurm: Place, older: str | None, late: int
) -> None:
    if older is not None:  # left by the link before
        (slurm.out / "job/.step").write_text(older)
    write_program(slurm.root / "bin/srun", STEP.replace("for word", f"{SIGNALLED}for word", 1))
    code, said = slurm.run(LISTENS.format(late=late))
    assert ended(slurm) == "the time limit came: it goes on from step 12"
    assert code == 0, said
    assert slurm.requeued
    assert set((slurm.root / "bin/scancel.argv").read_text().split("\n")) == {
        "--signal=URG 7.5", ""
    }


def test_what_is_announced_between_the_nodes_and_the_ranks_is_told(tmp_path: Path) -> None:
    """A warning between the check of the nodes and the start of the ranks is not lost.

    The stand-in for sleep sends it after the start of MPS, before the ranks start.
    """
    place = sharing(tmp_path / "p")
    write_program(place.root / "bin/srun", STEP)
    write_program(place.root / "bin/scancel", SCANCEL)
    write_program(place.root / "bin/nvidia-cuda-mps-control", MPS)
    write_program(place.root / "bin/sleep", (
        '#!/bin/sh\nif [ "$1" = 2 ]; then kill -USR1 "$PPID"; fi\nexec /bin/sleep "$@"\n'
    ))
    place.run(LISTENS.format(late=0))
    assert ended(place) == "the time limit came: it goes on from step 12"
    assert place.requeued


def test_mpirun_is_told_again_until_its_ranks_listen(tmp_path: Path) -> None:
    place = make(tmp_path / "p", cluster=Cluster(scheduler="pbs"))
    write_program(place.root / "bin/qsub", "#!/bin/sh\necho 8.server\n")
    write_program(place.root / "bin/mpirun", RANKS.replace(
        "trap : USR1 URG", "trap '[ ! -e listening ] || touch told' URG"
    ))
    with place.start(f"touch up; {LISTENS.format(late=2)}", "7.server") as child:
        until = time.monotonic() + 120
        while not (place.out / "up").exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGUSR1)
        said, _ = child.communicate(timeout=60)
    assert child.returncode == 0, said
    assert ended(place) == "the time limit came: it goes on from step 12"


def test_ranks_that_have_ended_are_told_nothing_more(slurm: Place) -> None:
    slurm.run(f"kill -USR1 $(ps -o ppid= $PPID); sleep 1; {CHECKPOINT.format(step=12)}; exit 75")
    calls = (slurm.root / "bin/scancel.argv").read_text()
    time.sleep(3)
    assert (slurm.root / "bin/scancel.argv").read_text() == calls


def test_an_end_that_is_told_while_nodes_are_looked_at_starts_no_rank(slurm: Place) -> None:
    write_program(slurm.root / "bin/srun", STEP.replace(
        "for word", 'case " $* " in *" node "*) kill -TERM "$PPID"; sleep 1 ;; esac\nfor word', 1
    ))
    code, said = slurm.run()
    assert code != 0, said
    assert not (slurm.root / "bin/argv").exists()
    refused = job_chain.refusal(slurm.out)
    told = refused.reason if refused else ended(slurm)
    assert told == "it was told to end (SIGTERM) before a rank was started"


def test_the_status_of_ranks_is_known_though_a_signal_came_with_their_end(slurm: Place) -> None:
    """The exit status of the ranks is recorded, although a signal arrives as they end.

    The shell returns the status of an ended process once; a second `wait` returns 127.
    """
    for number in range(5):
        slurm.run(f"kill -USR1 $(ps -o ppid= $PPID); kill -9 $$; exit {number}", str(number + 1))
        last = job_chain.read(slurm.out)[-1].end
        assert last is not None
        assert last.exit_status in (75, 137)
