"""What a login node tells of its cluster: the commands are stand-ins for those of batch systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimaran import sites
from trimaran.cluster import detect
from trimaran.errors import UsageError


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **said: str) -> None:
    """Put only these commands on PATH, beside those of the system that are no batch system's."""
    folder.mkdir()
    for name, text in said.items():
        program = folder / name
        program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
        program.chmod(0o755)
    for tool in ("cat", "sh"):
        (folder / tool).symlink_to(f"/bin/{tool}")
    monkeypatch.setenv("PATH", str(folder))


SLURM = {"sbatch": "", "squeue": "", "scancel": "", "sinfo": "gpu:a100:4", "sacctmgr": "project-1",
         "srun": "MPI plugin types are...\n\tpmix\n\tnone\n\tpmi2\nspecific pmix plugin versions"
                 " available: pmix_v4"}


def test_slurm_tells_partition_account_mpi_and_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, **SLURM)
    (tmp_path / "bin/sinfo").write_text(
        '#!/bin/sh\ncase $* in *%P*) echo "debug\nmain*" ;; *) echo "gpu:a100:4\n(null)" ;; esac\n'
    )
    assert detect.found() == {
        "scheduler": "slurm", "partition": "main", "account": "project-1", "mpi": "pmix",
        "gres": "gpu:a100",
    }


def test_pbs_and_lsf_tell_their_default_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = '{"Server": {"pbs1": {"default_queue": "workq"}}}'
    stand_in(tmp_path / "pbs", monkeypatch, qsub="", qdel="", qstat=server)
    assert detect.found() == {"scheduler": "pbs", "partition": "workq"}
    stand_in(tmp_path / "lsf", monkeypatch, bsub="", bjobs="", bkill="",
             bparams="MBD_SLEEP_TIME = 10\nDEFAULT_QUEUE = normal idle")
    assert detect.found() == {"scheduler": "lsf", "partition": "normal"}


def test_a_batch_system_that_does_not_answer_leaves_its_keys_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "pbs", monkeypatch, qsub="", qdel="", qstat="cannot connect")
    assert detect.found() == {"scheduler": "pbs"}


def test_where_there_is_none_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch)
    with pytest.raises(UsageError, match="none of sbatch, qsub, bsub is on PATH") as caught:
        detect.found()
    assert "make cluster" in str(caught.value.hint)


def test_what_is_written_is_a_site_file_and_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "config/site.yaml"
    detect.write(path, "ours", {"scheduler": "slurm", "partition": "main", "account": None})
    assert sites.load(path).clusters["ours"].partition == "main"
    before = path.read_text()
    with pytest.raises(UsageError, match="is there, and is not changed"):
        detect.write(path, "ours", {})
    assert path.read_text() == before


def test_an_answer_that_no_site_file_may_hold_leaves_none(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    with pytest.raises(UsageError, match="partition"):
        detect.write(path, "ours", {"partition": "$(touch owned)"})
    assert not path.exists()
