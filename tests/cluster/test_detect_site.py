"""Test the detection of facts of a cluster, with stand-ins for the commands of batch systems."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from refusals import refused
from trimaran import site_file
from trimaran.cli import app
from trimaran.cluster import detect_site
from trimaran.errors import UsageError


def stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **said: str) -> None:
    """Put only these commands on PATH, and `cat` and `sh`, which they need."""
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
    assert detect_site.detect() == {
        "scheduler": "slurm", "partition": "main", "account": "project-1", "mpi": "pmix",
        "gres": "gpu:a100",
    }


@pytest.mark.parametrize(("kinds", "known"), [
    (("aarch64",), "arm64"), (("x86_64",), "amd64"), (("aarch64", "x86_64"), None),
    (("ppc64le",), None),
])
def test_slurm_tells_the_architecture_of_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[str, ...], known: str | None
) -> None:
    nodes = "\n".join(f"NodeName=n Arch={kind} Partitions=main" for kind in kinds)
    other = "NodeName=o Arch=riscv64 Partitions=other"
    stand_in(tmp_path / "bin", monkeypatch, **SLURM, scontrol=f"{nodes}\n{other}")
    (tmp_path / "bin/sinfo").write_text("#!/bin/sh\necho 'main*'\n")
    found = {} if known is None else {"architecture": known}
    assert detect_site.architecture({"scheduler": "slurm", "partition": "main"}) == found
    assert detect_site.architecture({"scheduler": "slurm", "partition": None}) == found
    assert detect_site.architecture({"scheduler": "pbs", "partition": "main"}) == {}


TWO_KINDS = """NodeName=x Arch=x86_64 AvailableFeatures=ib Partitions=main,both
NodeName=g Arch=aarch64 AvailableFeatures=gh200 Partitions=gh,both
"""


@pytest.mark.parametrize(("answers", "known"), [
    ({}, "amd64"), ({"partition": "gh"}, "arm64"), ({"partition": "both"}, None),
    ({"partition": "both", "constraint": "gh200"}, "arm64"),
    ({"partition": "gh", "architecture": "amd64"}, "amd64"),
])
def test_the_architecture_is_that_of_the_nodes_that_the_user_chose(
    answers: dict[str, str], known: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, **SLURM, scontrol=TWO_KINDS)
    (tmp_path / "bin/sinfo").write_text("#!/bin/sh\necho 'main*'\n")
    site = tmp_path / "site.yaml"
    keys = (*detect_site.QUESTIONS, *detect_site.LAST_QUESTIONS)
    done = ask(site, "".join(f"{answers.get(key, '')}\n" for key in keys))
    assert done.returncode == 0, done.stderr
    assert site_file.load(site).clusters["here"].architecture == known
    if "architecture" in answers:
        assert "[arm64]" in done.stderr, "the detected value is shown first"


def test_without_questions_the_architecture_is_that_of_the_default_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, **SLURM, scontrol=TWO_KINDS)
    (tmp_path / "bin/sinfo").write_text("#!/bin/sh\necho 'main*'\n")
    site = tmp_path / "site.yaml"
    done = CliRunner().invoke(app, ["site", "init", "--yes", "--site", str(site)])
    assert done.exit_code == 0, done.output
    assert site_file.load(site).clusters["here"].architecture == "amd64"


def test_a_cluster_without_partitions_for_this_user_leaves_the_key_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, **{**SLURM, "sinfo": ""})
    assert detect_site.detect() == {"scheduler": "slurm", "account": "project-1", "mpi": "pmix"}


def test_the_longest_time_is_that_of_the_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"scheduler": "slurm", "partition": "main"}
    stand_in(tmp_path / "bin", monkeypatch, scontrol="PartitionName=main MaxTime=1-00:00:00 A=b")
    assert detect_site.limit(facts) == "1-00:00:00"
    stand_in(tmp_path / "free", monkeypatch, scontrol="PartitionName=main MaxTime=UNLIMITED")
    assert detect_site.limit(facts) is None
    assert detect_site.limit({"scheduler": "pbs", "partition": "main"}) is None


def ask(site: Path, answers: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Make a site file with the CLI on a terminal, with the stand-ins that are on PATH."""
    ours, terminal = pty.openpty()
    os.write(ours, answers.encode())
    try:
        return subprocess.run(
            [str(Path(sys.executable).with_name("trimaran")), "site", "init", "--site", str(site)],
            stdin=terminal, capture_output=True, text=True, check=False, timeout=60,
            env={**os.environ, "LOADEDMODULES": "", **env},
        )
    finally:
        os.close(ours)
        os.close(terminal)


def test_enter_takes_what_is_shown_and_leaves_out_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, **SLURM, scontrol="MaxTime=2:00:00")
    (tmp_path / "bin/sinfo").write_text("#!/bin/sh\necho 'main*'\n")
    site = tmp_path / "site.yaml"
    done = ask(site, "\n" * (len(detect_site.QUESTIONS) + 1), LOADEDMODULES="gcc/12:apptainer/1.4")
    assert done.returncode == 0, done.stderr
    assert any("main" in line and "2:00:00" in line for line in done.stderr.splitlines())
    cluster = site_file.load(site).clusters["here"]
    assert (cluster.partition, cluster.account, cluster.mpi) == ("main", "project-1", "pmix")
    assert cluster.modules == ("apptainer/1.4",)
    assert (cluster.qos, cluster.constraint, cluster.data) == (None, None, None)


ANSWERS = """gpu
other
high
ib&a100
gcc/12 apptainer/1.4
/sw/bin/apptainer
pmi2
gpu:h100
--userns
NCCL_SOCKET_IFNAME=ib0 UCX_NET_DEVICES=mlx5_0:1
/project/data
/scratch/me
/local
arm64
"""


def test_answers_are_the_keys_of_the_site_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, **SLURM)
    site = tmp_path / "site.yaml"
    done = ask(site, ANSWERS)
    assert done.returncode == 0, done.stderr
    cluster = site_file.load(site).clusters["here"]
    assert (cluster.partition, cluster.account, cluster.qos) == ("gpu", "other", "high")
    assert (cluster.constraint, cluster.modules) == ("ib&a100", ("gcc/12", "apptainer/1.4"))
    assert (cluster.mpi, cluster.gres, cluster.flags) == ("pmi2", "gpu:h100", ("--userns",))
    assert cluster.architecture == "arm64"
    assert cluster.env == {"NCCL_SOCKET_IFNAME": "ib0", "UCX_NET_DEVICES": "mlx5_0:1"}
    assert [str(path) for path in (cluster.apptainer, cluster.data, cluster.scratch,
                                   cluster.local_storage)] == [
        "/sw/bin/apptainer", "/project/data", "/scratch/me", "/local"
    ]


def test_an_answer_that_is_no_variable_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch, **SLURM)
    done = ask(tmp_path / "site.yaml", "\n" * 9 + "ib0\n" + "\n" * 3)
    assert done.returncode == 2
    assert "[argument-invalid]" in done.stderr
    assert "'ib0'" in done.stderr
    assert not (tmp_path / "site.yaml").exists()


def test_pbs_is_not_asked_for_what_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect_site, "NETWORK", tmp_path)
    (tmp_path / "ib1").mkdir()
    (tmp_path / "ib0").mkdir()
    asked = detect_site.questions({"scheduler": "pbs", "partition": "workq"})
    assert not {"qos", "mpi", "gres"} & asked.keys()
    assert asked["partition"][1] == "workq"
    assert asked["env"][1] == "NCCL_SOCKET_IFNAME=ib0"


def test_pbs_and_lsf_tell_their_default_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = '{"Server": {"pbs1": {"default_queue": "workq"}}}'
    stand_in(tmp_path / "pbs", monkeypatch, qsub="", qdel="", qstat=server)
    assert detect_site.detect() == {"scheduler": "pbs", "partition": "workq"}
    stand_in(tmp_path / "lsf", monkeypatch, bsub="", bjobs="", bkill="",
             bparams="MBD_SLEEP_TIME = 10\nDEFAULT_QUEUE = normal idle")
    assert detect_site.detect() == {"scheduler": "lsf", "partition": "normal"}


def test_a_batch_system_that_does_not_answer_leaves_its_keys_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "pbs", monkeypatch, qsub="", qdel="", qstat="cannot connect")
    assert detect_site.detect() == {"scheduler": "pbs"}


def test_where_there_is_none_the_way_out_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path / "bin", monkeypatch)
    with refused("scheduler-missing", "sbatch, qsub, bsub", kind=UsageError) as caught:
        detect_site.detect()
    assert "`make cluster`" in str(caught.value.hint)


def test_what_is_written_is_a_site_file_and_is_never_changed(tmp_path: Path) -> None:
    path = tmp_path / "config/site.yaml"
    detect_site.write(path, "ours", {"scheduler": "slurm", "partition": "main", "account": None})
    assert site_file.load(path).clusters["ours"].partition == "main"
    before = path.read_text()
    with refused("file-exists", path, kind=UsageError):
        detect_site.write(path, "ours", {})
    assert path.read_text() == before


def test_an_answer_that_no_site_file_may_hold_leaves_none(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    with pytest.raises(UsageError, match="partition"):
        detect_site.write(path, "ours", {"partition": "$(touch owned)"})
    assert not path.exists()
