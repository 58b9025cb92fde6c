"""Copies of image and data on the disk of a node are complete, and do not outlive their job.

The script of a job is run with stand-ins for Slurm and Apptainer; the copies are real.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from jobplaces import CHECKPOINT, SRUN, Place, make, noting, warn, write_program
from trimaran.cluster import watch
from trimaran.site_file import Cluster

SHARD = b"s" * 5000


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Create a Slurm job that copies its image and its data to the local disk of the node."""
    site = Cluster(mpi="pmi2", local_storage=tmp_path / "own disk", stage_data=True)
    found = make(tmp_path / "p", cluster=site)
    (found.root / "data/shard-0").write_bytes(SHARD)
    return found


def staged(place: Place) -> Path:
    """Return the folder on the local disk of the node for the files that job 7 copies."""
    assert place.job.cluster.local_storage is not None
    return place.job.cluster.local_storage / "trimaran-7-node"


def run(place: Place) -> tuple[int, str, list[str]]:
    """Run the job; return its exit status, its output, and the copied files that its ranks see."""
    seen, there = place.root / "seen", staged(place)
    code, said = place.run(
        f"cd '{there}'; find . ! -name '.*' ! -type d | sort >'{seen}'\n"
        f"cp data1/shard-0 '{place.root}'"
    )
    return code, said, seen.read_text().split() if seen.exists() else []


WHOLE = ["./data1/dataset.json", "./data1/shard-0", "./image.sif"]


def test_ranks_have_copies_which_are_gone_afterwards(place: Place) -> None:
    code, said, seen = run(place)
    assert code == 0, said
    assert seen == WHOLE
    words = place.recorded("argv")
    assert str(staged(place) / "image.sif") in words
    assert any(f"source={staged(place) / 'data1'},d" in word for word in words)
    assert not staged(place).exists()


def test_copies_are_gone_before_the_job_is_queued_again(place: Place) -> None:
    """A job removes its copies from the node before it puts itself back into the queue of Slurm.

    Afterwards, Slurm starts no further step of this job on the node, so the stand-in for `srun`
    fails.
    """
    write_program(place.root / "bin/srun", SRUN.replace(
        "#!/bin/sh\n", '#!/bin/sh\n[ ! -e "${0%/*}/requeued" ] || exit 1\n', 1
    ))
    code, said = warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75")
    assert code == 0, said
    assert place.requeued
    assert not staged(place).exists()


@pytest.mark.parametrize("left", ["half", "whole", "other"])
def test_what_a_killed_link_left_is_made_whole(place: Place, left: str) -> None:
    """A requeued job completes the copies that its killed predecessor left on the node.

    A requeued job has the number of its predecessor, and so the same folder for copies on a node.
    """
    copy = staged(place) / "data1"
    copy.mkdir(parents=True)
    (staged(place) / "image.sif").write_text("s")
    if left == "half":
        copy.rename(staged(place) / ".data1")
        (staged(place) / ".data1/shard-0").write_bytes(SHARD[:9])
    elif left == "other":
        (copy / "dataset.json").write_text('{"an": "older one"}')
        (copy / "gone").touch()
    else:
        shutil.copytree(place.root / "data", copy, dirs_exist_ok=True)
    code, said, seen = run(place)
    assert code == 0, said
    assert seen == WHOLE
    assert (place.root / "shard-0").read_bytes() == SHARD


def test_linked_data_are_copied_and_not_their_links(place: Place) -> None:
    elsewhere = place.root / "elsewhere"
    (place.root / "data").rename(elsewhere)
    (place.root / "data").symlink_to(elsewhere)
    (elsewhere / "shard-0").rename(place.root / "shard-1")
    (elsewhere / "shard-0").symlink_to("../shard-1")
    code, said, seen = run(place)
    assert code == 0, said
    assert seen == WHOLE


def test_a_full_disk_starts_no_rank_and_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the local disk is full, the job starts no rank and leaves no copies.

    The stand-in for cp runs the real cp with a limit of 2 KiB on the size of files.
    """
    write_program(
        place.root / "bin/cp", "#!/bin/sh\ntrap '' XFSZ\nulimit -f 2\nexec /bin/cp \"$@\"\n"
    )
    code, said, seen = run(place)
    assert code == 74
    assert f" {place.root / 'data'} " in said
    assert f" {staged(place)}: " in said
    assert os.strerror(errno.EFBIG) in said
    assert not seen
    assert not staged(place).exists()
    (place.out / "job/ids").write_text("7\n")
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    [found] = watch.look([place.out])
    assert os.strerror(errno.EFBIG) in found.reason


def test_a_copy_that_is_another_one_starts_no_rank(place: Place) -> None:
    """If a copy differs from the original, the job starts no rank.

    The stand-in for cp changes the copy, as a defective disk would.
    """
    write_program(
        place.root / "bin/cp",
        '#!/bin/sh\n/bin/cp "$@" || exit\nfor to; do :; done\n'
        'if [ -d "$to" ]; then echo x >"$to/dataset.json"; fi\n',
    )
    code, said, seen = run(place)
    assert code == 65
    assert f": {staged(place) / 'data1'}" in said
    assert not seen


def leave(place: Place, job: str, node: str = "node", *, number: str | None = None) -> Path:
    """Create a folder of copies, as an earlier job leaves it on the node; return its path."""
    folder = staged(place).with_name(f"trimaran-{job}-{node}")
    folder.mkdir(parents=True)
    (folder / "image.sif").write_text("s")
    if number != "":
        (folder / ".job").write_text(f"{number or job}\n")
    return folder


@pytest.mark.parametrize(
    ("state", "stays"),
    [("", False), ("CANCELLED", False), ("FAILED", False), ("TIMEOUT", False),
     ("NODE_FAIL", False), ("COMPLETED", False), ("OUT_OF_MEMORY", False), ("RUNNING", True),
     ("COMPLETING", True), ("PENDING", True), ("REQUEUED", True), ("SUSPENDED", True),
     ("UNHEARD_OF", True)],
)
def test_a_job_first_removes_what_ended_jobs_have_left(
    place: Place, state: str, stays: bool
) -> None:
    left = leave(place, "6", "n2")
    (place.root / "bin/queue").write_text(f"6 {state}\n16 RUNNING\n" if state else "16 RUNNING\n")
    code, said, seen = run(place)
    assert code == 0, said
    assert seen == WHOLE
    assert left.exists() is stays
    told = f"removed {left}, the copies of job 6, which has ended"
    assert (told in (place.out / "log.txt").read_text()) is not stays


def test_where_slurm_does_not_answer_nothing_is_removed(place: Place) -> None:
    left = leave(place, "6")
    write_program(place.root / "bin/squeue", noting(said="slurm_load_jobs error", code=1))
    code, said, _ = run(place)
    assert code == 0, said
    assert left.exists()


@pytest.mark.parametrize("number", ["", " ", "6; touch owned", "$(touch owned)", "--all", "x\n6"])
def test_a_folder_without_the_number_of_a_job_stays(place: Place, number: str) -> None:
    left = leave(place, "6", number=number)
    code, said, _ = run(place)
    assert code == 0, said
    assert left.exists()
    assert not list(place.root.parent.rglob("owned"))


def test_what_is_not_of_this_user_or_no_folder_stays(place: Place) -> None:
    """A job that removes copies of earlier jobs keeps another user's folder and a link's target.

    The stand-in for `stat` reports another user as owner of the folder of job 5. In place of the
    folder of job 6, there is a symbolic link.
    """
    theirs, elsewhere = leave(place, "5"), place.root / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / ".job").write_text("6\n")
    (elsewhere / "precious").touch()
    link = theirs.with_name("trimaran-6-node")
    link.symlink_to(elsewhere)
    write_program(place.root / "bin/stat", (
        '#!/bin/sh\ncase "$*" in *trimaran-5-*) echo 12345 ;; *) exec /usr/bin/stat "$@" ;; esac\n'
    ))
    code, said, _ = run(place)
    assert code == 0, said
    assert (theirs / "image.sif").exists()
    assert (elsewhere / "precious").exists()


@pytest.mark.parametrize("kind", ["link", "of another user"])
def test_a_folder_that_another_user_has_made_before_is_not_taken(place: Place, kind: str) -> None:
    taken = staged(place)
    taken.parent.mkdir()
    (place.root / "theirs").mkdir()
    if kind == "link":
        taken.symlink_to(place.root / "theirs")
    else:
        taken.mkdir()
        write_program(place.root / "bin/stat", "#!/bin/sh\necho 12345\n")
    code, said, seen = run(place)
    assert code == 74
    assert f" {taken}: " in said
    assert not seen
    assert not list((place.root / "theirs").iterdir())


def test_no_other_user_can_look_into_the_copies(place: Place) -> None:
    code, said = place.run(f"stat -c %a '{staged(place)}' >'{place.root}/rights'")
    assert code == 0, said
    assert (place.root / "rights").read_text() == "700\n"


def ended_by_slurm(child: subprocess.Popen[str]) -> None:
    """Signal all processes of the job, as Slurm does when a job is cancelled."""
    os.killpg(child.pid, signal.SIGTERM)
    child.communicate(timeout=60)


def wait_for(file: Path) -> None:
    until = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_job_that_is_cancelled_while_it_copies_leaves_nothing(place: Place) -> None:
    write_program(place.root / "bin/cp", '#!/bin/sh\n/bin/cp "$@"\ntouch "${0%/*}/up"\nsleep 30\n')
    with place.start("", "7") as child:
        wait_for(place.root / "bin/up")
        assert staged(place).exists()
        write_program(place.root / "bin/srun", "#!/bin/sh\nexit 1\n")
        ended_by_slurm(child)
    assert not staged(place).exists()


def test_a_job_that_is_cancelled_while_it_trains_leaves_nothing(place: Place) -> None:
    """A cancelled job removes its copies, but only after its rank has written the checkpoint."""
    data = staged(place) / "data1/shard-0"
    with place.start(
        f"trap 'sleep 1; cp \"{data}\" \"{place.root}/read\"; exit 75' TERM; touch up;"
        " sleep 30 & wait", "7",
    ) as child:
        wait_for(place.out / "up")
        write_program(place.root / "bin/srun", "#!/bin/sh\nexit 1\n")
        ended_by_slurm(child)
    assert (place.root / "read").read_bytes() == SHARD
    assert not staged(place).exists()


def test_what_another_rank_of_the_node_still_reads_stays(place: Place) -> None:
    mark = staged(place) / ".rank-other"
    with place.start(f"touch '{mark}' up; sleep 30 & wait", "7") as child:
        wait_for(place.out / "up")
        write_program(place.root / "bin/srun", "#!/bin/sh\nexit 1\n")
        ended_by_slurm(child)
    assert (staged(place) / "image.sif").exists()


def test_the_status_of_a_rank_is_its_own(place: Place) -> None:
    assert place.run("exit 4")[0] == 4
    assert place.run("kill -9 $$", "8")[0] == 137
    assert not staged(place).exists()


ANSWERS = {
    ("pbs", "qstat", "Job Id: 6.server-a\n    job_state = R"): True,
    ("pbs", "qstat", "Job Id: 6.server-a\n    job_state = E"): True,
    ("pbs", "qstat", "qstat: Unknown Job Id 6.server-a"): False,
    ("pbs", "qstat", "qstat: 6.server-a Job has finished, use -x"): False,
    ("pbs", "qstat", "qstat: cannot connect to server"): True,
    ("lsf", "bjobs", "RUN"): True,
    ("lsf", "bjobs", "PEND"): True,
    ("lsf", "bjobs", "DONE"): False,
    ("lsf", "bjobs", "EXIT"): False,
    ("lsf", "bjobs", "Job <6> is not found"): False,
    ("lsf", "bjobs", "LSF is down. Please wait ..."): True,
}
"""(Batch system, its status command, the command's output) -> whether copies are kept.

The output is about an earlier job, which has left copies of its files on the disk of the
node. These copies are removed only if the output says that this job has ended.
"""


@pytest.mark.parametrize(("scheduler", "program", "answer"), ANSWERS)
def test_other_batch_systems_say_which_jobs_have_ended(
    tmp_path: Path, scheduler: str, program: str, answer: str
) -> None:
    site = Cluster.model_validate({"scheduler": scheduler, "local_storage": tmp_path / "own disk"})
    place = make(tmp_path / "p", cluster=site)
    left = leave(place, "6", "n", number="6.server-a" if scheduler == "pbs" else "6")
    write_program(place.root / "bin" / program, noting(said=answer))
    code, said = place.run(number="7")
    assert code == 0, said
    assert left.exists() is ANSWERS[scheduler, program, answer]
