"""A job reads job/functions.sh only if it is the file that was submitted."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobplaces import SRUN, Place, make, noting, write_program
from refusals import refused
from trimaran.cluster import jobs, script
from trimaran.cluster.script import FUNCTIONS, SCRIPT
from trimaran.run import job_chain
from trimaran.site_file import Cluster

pytestmark = pytest.mark.timeout(120)  # a program that opened the FIFO would wait for ever


def edited(file: Path) -> None:
    file.write_text(file.read_text() + "touch owned\n")


def linked(file: Path) -> None:
    """Replace the file by a link to a file with the same content."""
    shutil.move(file, file.parents[1] / "elsewhere")
    file.symlink_to(file.parents[1] / "elsewhere")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


CHANGES: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "edited": (edited, "is another file than the one that was submitted", "run-changed"),
    "missing": (Path.unlink, "is not there", "file-missing"),
    "linked": (linked, "is a link", "path-outside"),
    "a fifo": (fifo, "is not there", "path-outside"),
}
"""Kind of damage -> how job/functions.sh is damaged, and the expected reactions.

The reactions are the message of the job, and the error code of `trimaran resume`.
"""


@pytest.mark.parametrize("change", CHANGES)
def test_other_functions_are_not_read_and_no_rank_is_started(place: Place, change: str) -> None:
    damage, why, _ = CHANGES[change]
    damage(place.out / FUNCTIONS)
    code, said = place.run()
    assert code == 65
    assert f"job.sh: {os.uname().nodename}: job/functions.sh {why}" in said
    refused = job_chain.refusal(place.out)
    assert refused is not None
    assert (refused.job, refused.exit_status) == ("7", 65)
    assert f"job/functions.sh {why}" in refused.reason
    assert not (place.root / "bin/argv").exists()
    assert not list(place.root.rglob("owned"))
    assert not list((place.out / "job").glob(".part*"))


@pytest.mark.parametrize("change", CHANGES)
def test_a_node_that_sees_other_functions_starts_no_rank(place: Place, change: str) -> None:
    damage, why, _ = CHANGES[change]
    aside = place.root / "aside"
    (aside / "job").mkdir(parents=True)
    shutil.copy(place.out / FUNCTIONS, aside / "job")
    damage(aside / FUNCTIONS)
    swap = f"rm job/functions.sh; cp -a '{aside}/job/.' job/; cp -a '{aside}/elsewhere' . || :"
    write_program(place.root / "bin/srun", SRUN.replace(
        "for word; do", f'case " $* " in *" node "*) {swap} ;; esac\nfor word; do', 1
    ))
    code, said = place.run()
    assert code == 65, said
    assert f"job/functions.sh {why}" in said
    refused = job_chain.refusal(place.out)
    assert refused is not None
    assert f"job/functions.sh {why}" in refused.reason
    assert not (place.root / "bin/argv").exists()


def test_functions_that_change_while_nodes_are_looked_at_start_no_rank(place: Place) -> None:
    write_program(place.root / "bin/apptainer", (
        (place.root / "bin/apptainer").read_text().replace(
            "exec) exit 0", f"exec) sleep 1; echo : >>'{place.out}/job/functions.sh'; exit 0", 1)
    ))
    code, said = place.run()
    assert code == 65, said
    assert not (place.root / "bin/argv").exists()
    assert ": job/functions.sh " in (place.out / "log.txt").read_text()


@pytest.mark.parametrize("scheduler", script.SCHEDULERS)
@pytest.mark.parametrize("how", ["as a copy", "from standard input"])
def test_they_are_found_whoever_has_the_script_and_wherever(
    tmp_path: Path, scheduler: str, how: str
) -> None:
    """A job script finds the file `job/functions.sh`, wherever the batch system puts the script.

    PBS runs a copy of the script from another folder; LSF passes it to a shell as standard input.
    """
    place = make(tmp_path / "p", cluster=Cluster(scheduler=scheduler, mpi="pmi2"))
    own = place.root / "spool"
    if how == "as a copy":
        own.write_text("cd /\n" + (place.out / SCRIPT).read_text())
    else:
        own.write_text(f"cd /; exec sh <'{place.out / SCRIPT}'\n")
    code, said = place.run(script=own)
    assert code == 0, said
    assert (place.root / "bin/argv").exists()


@pytest.fixture
def queued(place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file into which the stand-in for `sbatch` writes its arguments.

    The file exists only after a job was queued.
    """
    write_program(place.root / "bin/sbatch", noting(said="8"))
    monkeypatch.setenv("PATH", f"{place.root / 'bin'}:/usr/bin:/bin")
    return place.root / "bin/sbatch.argv"


@pytest.mark.parametrize("change", CHANGES)
def test_resume_refuses_other_functions_before_it_queues_a_job(
    place: Place, queued: Path, change: str
) -> None:
    damage, _, error_code = CHANGES[change]
    damage(place.out / FUNCTIONS)
    with refused(error_code, "job/functions.sh"):
        jobs.again(place.out)
    assert not queued.exists()
    assert not jobs.is_queueing(place.out)


def test_resume_takes_the_files_as_they_were_submitted(place: Place, queued: Path) -> None:
    assert jobs.again(place.out).job == "8"
    assert queued.exists()


def test_a_run_of_an_older_version_has_all_in_its_script_and_can_be_resumed(
    place: Place, queued: Path
) -> None:
    record = json.loads((place.out / "run.json").read_text())
    del record["job"]["functions_sha256"]
    (place.out / "run.json").write_text(json.dumps(record))
    (place.out / FUNCTIONS).unlink()
    assert jobs.again(place.out).job == "8"
    assert queued.exists()
