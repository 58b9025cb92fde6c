"""Links, FIFOs and foreign files in a run directory: a job never reads or writes through them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobplaces import SRUN, Place, make, write_program
from trimaran.cluster.script import SCRIPT
from trimaran.run import job_chain, run_directory
from trimaran.site_file import Cluster

pytestmark = pytest.mark.timeout(120)  # a program that opened the FIFO would wait for ever

WRITTEN = (
    "job/.step", "job/.end.part", "job/.0", "job/.1", "job/.refused.part", "job/refused.json",
    "job/link-0001.json", "job/link-0001.0", "job/link-0001.1", "job/link-0001.part",
    "job/link-0001.end.json", "job/ids", "job/cancelled", "job/job.sh", "log.txt",
)
"""Files in a run directory that job scripts write or read, including those of older versions."""

PRECIOUS = "precious\n"


@pytest.fixture
def precious(place: Place) -> Path:
    """Create a file of the user outside of the run, and return its path."""
    file = place.root / "precious"
    file.write_text(PRECIOUS)
    return file


@pytest.mark.parametrize("name", WRITTEN)
def test_a_link_is_never_written_through(place: Place, precious: Path, name: str) -> None:
    file, own = place.out / name, place.root / "spool"
    own.write_text((place.out / SCRIPT).read_text())  # the batch system's copy
    file.unlink(missing_ok=True)
    file.symlink_to(precious)
    code, said = place.run("exit 75", script=own)
    assert precious.read_text() == PRECIOUS
    assert code == 73
    assert f": {name} " in said
    refused = job_chain.refusal(place.out)
    assert refused is not None
    assert name in refused.reason
    assert not (place.root / "bin/argv").exists()


@pytest.mark.parametrize("name", ["job/ids", "log.txt"])
def test_a_second_name_of_a_file_is_not_appended_to(
    place: Place, precious: Path, name: str
) -> None:
    (place.out / name).unlink(missing_ok=True)
    (place.out / name).hardlink_to(precious)
    code, _said = place.run()
    assert (code, precious.read_text()) == (73, PRECIOUS)


@pytest.mark.parametrize("kind", ["fifo", "folder", "dangling", "zeros"])
@pytest.mark.parametrize("name", ["job/link-0001.json", "job/cancelled", "job/.step", "log.txt"])
def test_what_is_no_file_is_waited_for_by_nobody(place: Place, name: str, kind: str) -> None:
    file = place.out / name
    file.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        file.symlink_to("/dev/zero" if kind == "zeros" else place.root / "nowhere")
    code, said = place.run()
    assert code == 73, said
    assert not (place.root / "nowhere").exists()


def test_a_folder_of_jobs_that_is_a_link_is_not_written_to(place: Place) -> None:
    (place.out / "job").rename(place.root / "elsewhere")
    (place.out / "job").symlink_to(place.root / "elsewhere")
    before = sorted(path.name for path in (place.root / "elsewhere").iterdir())
    code, said = place.run()
    assert code == 73
    assert ": job " in said
    assert sorted(path.name for path in (place.root / "elsewhere").iterdir()) == before


@pytest.mark.parametrize("name", ["checkpoints", "metrics.jsonl", "a b\n$(touch owned)"])
def test_what_leads_out_of_the_run_is_refused_wherever_it_is(place: Place, name: str) -> None:
    (place.out / name).symlink_to(place.root / "tmp")
    assert place.run()[0] == 73
    assert not list(place.root.rglob("owned"))


def test_a_link_within_the_run_is_its_own_business(place: Place) -> None:
    (place.out / "checkpoints").mkdir()
    (place.out / "checkpoints/newest").symlink_to("step-1")
    (place.out / "checkpoints/step-1").touch()
    code, said = place.run()
    assert code == 0, said


def test_a_link_that_comes_while_the_nodes_are_looked_at_is_replaced(
    place: Place, precious: Path
) -> None:
    """If a link appears at the path of a job's file while the job checks its nodes, it is replaced.

    Another user could create the link, because the names of the files, such as `.step` and
    `link-NNNN.end.json`, are predictable.
    """
    names = " ".join(("job/.step", "job/link-0001.end.json", "job/.end.part"))
    write_program(place.root / "bin/srun", SRUN.replace(
        "for word; do", f'case " $* " in *" node "*) for name in {names}; do'
        f" ln -sf '{precious}' $name; done ;; esac\nfor word; do", 1,
    ))
    code, said = place.run()
    assert code == 0, said
    assert precious.read_text() == PRECIOUS
    assert run_directory.load(place.out).exit_status == 0
    assert not (place.out / "job/link-0001.end.json").is_symlink()


def test_what_the_job_writes_can_be_read_by_whom_the_user_lets(place: Place) -> None:
    place.run()
    usual = (place.out / SCRIPT).stat().st_mode & 0o777
    for name in ("link-0001.json", "link-0001.end.json"):
        assert (place.out / "job" / name).stat().st_mode & 0o777 == usual


@pytest.mark.parametrize("change", ["edited", "of another run", "no hash", "no run.json"])
def test_another_script_than_the_submitted_one_starts_no_rank(place: Place, change: str) -> None:
    """If `job.sh` differs from the submitted script, no rank starts.

    The batch system runs a copy of the script, but the tasks run the file in the run directory.
    """
    own = place.root / "spool"
    own.write_text((place.out / SCRIPT).read_text())
    file, record = place.out / SCRIPT, place.out / "run.json"
    if change == "edited":
        file.write_text(file.read_text().replace("--seed=17", "--seed=18"))
    elif change == "of another run":
        file.write_text((make(place.root / "b", "c").out / SCRIPT).read_text())
    elif change == "no hash":
        record.write_text(record.read_text().replace("script_sha256", "script"))
    else:
        record.unlink()
    code, said = place.run(script=own)
    assert code == 65
    assert "job/job.sh" in said
    refused = job_chain.refusal(place.out)
    assert refused is not None
    assert "job/job.sh" in refused.reason
    assert not (place.root / "bin/argv").exists()


def test_a_node_that_sees_another_script_starts_no_rank(place: Place) -> None:
    """If a node reads an older script, for example from a file system cache, no rank starts."""
    write_program(place.root / "bin/srun", SRUN.replace(
        "for word; do", 'case " $* " in *" node "*) echo : >>job/job.sh ;; esac\nfor word; do', 1
    ))
    code, said = place.run()
    assert code == 65
    assert f"{os.uname().nodename}: job/job.sh is another script" in said
    assert not (place.root / "bin/argv").exists()


def test_a_script_that_changes_while_nodes_are_looked_at_starts_no_rank(tmp_path: Path) -> None:
    place = make(tmp_path / "p", cluster=Cluster(mpi="pmi2"))
    write_program(place.root / "bin/apptainer", (
        (place.root / "bin/apptainer").read_text().replace(
            "exec) exit 0", f"exec) echo : >>'{place.out}/job/job.sh'; exit 0", 1)
    ))
    code, said = place.run()
    assert code == 65, said
    assert not (place.root / "bin/argv").exists()
