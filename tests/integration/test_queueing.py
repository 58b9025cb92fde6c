"""The process that submits a job to a real Slurm is killed around the moment of the submission.

The ranks need no engine: a stand-in replaces Apptainer, but all commands of Slurm are real.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobplaces import Place, make, write_program
from tinyapp import call
from trimaran.cluster import jobs
from trimaran.cluster.script import SCRIPT
from trimaran.files import sha256
from trimaran.site_file import Cluster

pytestmark = [pytest.mark.engine("slurm"), pytest.mark.timeout(280)]

SBATCH = """#!/bin/sh
{before}
said=$({sbatch} "$@") || exit
{after}
printf '*** Welcome ***\\n%s\\nQuota 5\\n' "$said"
"""


@pytest.fixture
def env(slurm: Path) -> dict[str, str]:
    return {**os.environ, "SLURM_CONF": str(slurm / "slurm.conf")}


@pytest.fixture
def busy(env: dict[str, str], tmp_path: Path) -> Iterator[None]:
    """Occupy both nodes with another job, so that submitted jobs wait."""
    words = ["sbatch", "--parsable", "-N2", "--exclusive", "--wrap", "sleep 600"]
    job = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    yield
    subprocess.run(["scancel", job.stdout.strip()], env=env, check=True)


def with_slurm(root: Path, env: dict[str, str]) -> Place:
    """Create a run directory with a job, and use Slurm's real commands instead of stand-ins."""
    place = make(root, cluster=Cluster(mpi="pmi2"))
    for name in ("srun", "squeue", "scancel", "scontrol"):
        (place.root / "bin" / name).unlink()
    queue_by(place)
    env["PATH"] = f"{place.root / 'bin'}:{os.environ['PATH']}"
    return place


def queue_by(place: Place, before: str = "", after: str = "") -> None:
    """Wrap the real sbatch: print additional text, and run shell code before and after it."""
    found = subprocess.run(["sh", "-c", "command -v sbatch"], capture_output=True, text=True,
                           check=True, env={"PATH": os.environ["PATH"]}).stdout.strip()
    write_program(place.root / "bin/sbatch",
                  SBATCH.format(before=before, after=after, sbatch=found))


def first_on_path(place: Place) -> None:
    """Change PATH in the job script, so that the job runs the stand-ins for Slurm's commands."""
    script, record = place.out / SCRIPT, place.out / "run.json"
    before = sha256(script)
    text = script.read_text()
    script.write_text(text.replace("PATH=${PATH:-", f"PATH='{place.root / 'bin'}':${{PATH:-", 1))
    record.write_text(record.read_text().replace(before, sha256(script)))


def wait(until: Callable[[], bool]) -> None:
    end = time.monotonic() + 300
    while not until():
        assert time.monotonic() < end
        time.sleep(0.5)


@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize(
    ("sent", "moment"), [("KILL", "before"), ("KILL", "after"), ("INT", "before")]
)
def test_the_job_is_found_and_never_there_twice(
    sent: str, moment: str, env: dict[str, str], tmp_path: Path
) -> None:
    place = with_slurm(tmp_path / "p", env)
    queue_by(place, **{moment: f'kill -{sent} "$PPID"; sleep 0.5'})
    assert call(["resume", str(place.out)], env).returncode == (-9 if sent == "KILL" else 130)
    time.sleep(2)
    queue_by(place)
    assert "pending" in call(["status", str(place.out)], env).stdout
    again = call(["resume", str(place.out)], env)
    assert again.returncode == 2
    assert "is PENDING" in again.stderr
    listed = subprocess.run(["squeue", "--me", "--noheader", f"--name={place.job.name}"], env=env,
                            capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(listed) == 1
    assert call(["cancel", str(place.out)], env).returncode == 0
    assert "cancelled" in call(["status", str(place.out)], env).stdout


def test_a_job_that_queues_another_reads_its_number_below_a_banner(
    env: dict[str, str], tmp_path: Path
) -> None:
    place = with_slurm(tmp_path / "p", env)
    write_program(place.root / "bin/scontrol", '#!/bin/sh\n[ "$1" = requeue ] && exit 1\n'
                                               'PATH=/usr/bin:/bin\nexec scontrol "$@"\n')
    first_on_path(place)
    (place.root / "bin/act").write_text(
        f"cd '{place.out}'\nif [ -e checkpoints ]; then exit 0; fi\ntouch up; sleep 8\n"
        "mkdir -p checkpoints; touch checkpoints/step-00000012.npz; exit 75\n"
    )
    assert call(["resume", str(place.out)], env).returncode == 0
    wait(lambda: (place.out / "up").exists())
    [first] = jobs.numbers(place.out)
    subprocess.run(["scancel", "-b", "--signal=USR1", first], env=env, check=True)
    wait(lambda: "completed" in call(["status", str(place.out)], env).stdout)
    assert [int(number) - int(first) for number in jobs.numbers(place.out)] == [0, 1]
