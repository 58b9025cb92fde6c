"""Create run directories with job scripts, and fake commands of batch systems to run them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path

from trimaran.cluster import script
from trimaran.cluster.script import FUNCTIONS, SCRIPT, Job
from trimaran.engines import BuiltImage
from trimaran.engines.apptainer import Apptainer
from trimaran.files import sha256
from trimaran.recipes import library
from trimaran.recipes.cards import Argument
from trimaran.recipes.recipe import Resources
from trimaran.run import job_chain, run_directory
from trimaran.run.record import DataRecord, ImageRecord, JobRecord
from trimaran.run.request import Request
from trimaran.site_file import Cluster

RECIPE = "resnet-imagenet/cpu-2node-smoke"
TASKS = r"""worst=0 rank=0 ended=
# What it is told it passes on; Slurm itself, and the real others, signal the tasks.
trap : USR1 URG
trap 'ended=yes; kill -TERM "$task"' TERM
while [ "$rank" -lt "$tasks" ] && [ -z "$ended" ]; do
    SLURM_PROCID=$rank OMPI_COMM_WORLD_RANK=$rank SLURM_STEP_NUM_TASKS=$tasks "$@" &
    task=$!
    while kill -0 "$task" 2>/dev/null; do
        code=0
        wait "$task" || code=$?
    done
    if [ "$code" -ne 0 ]; then worst=$code; fi
    rank=$((rank + 1))
done
exit "$worst"
"""
SRUN = r"""#!/bin/sh
case $* in *--mpi=list*) echo "pmix none pmi2"; exit ;; esac
for word; do
    case $word in
    --ntasks=*) tasks=${word#*=}; shift ;;
    --*) shift ;;
    *) break ;;
    esac
done
""" + TASKS
RANKS = r"""#!/bin/sh
tasks=
while [ "$1" != /bin/sh ]; do
    case $1 in -n | --nrs) tasks=$2 ;; esac
    shift
done
""" + TASKS
"""Source of the fake mpirun and the fake jsrun."""
ENGINE = r"""#!/bin/sh
case $1 in --version) echo "apptainer version 1.4.5"; exit ;; esac
case $2 in exec) exit 0 ;; esac
here=$(dirname "$0")
for word; do printf '%s\0' "$word"; done >"$here/argv"
env -0 >"$here/env"
echo "to the log"
. "$here/act"
"""
STAND_INS = {
    "srun": SRUN, "mpirun": RANKS, "jsrun": RANKS, "apptainer": ENGINE,
    "squeue": '#!/bin/sh\ncat "${0%/*}/queue"\n',
    "scancel": "#!/bin/sh\n",  # the real scancel signals the ranks
    "scontrol": '#!/bin/sh\n[ "$1" = requeue ] && touch "${0%/*}/requeued"\n',
}
"""Name -> source of a fake program of a batch system or of Apptainer."""


@dataclass
class Place:
    """A run directory with a job script, and fake programs on PATH."""

    root: Path
    job: Job

    @property
    def out(self) -> Path:
        return self.job.directory

    def install(self, text: str, functions: str | None = None) -> None:
        """Replace the job script, and record its hash as that of the submitted script.

        `functions` replaces the file of shell functions; the script then contains its SHA-256.
        """
        (self.out / FUNCTIONS).write_text(script.functions() if functions is None else functions)
        if functions is not None:
            own = f"functions_sha256={sha256(self.out / FUNCTIONS)}"
            text = re.sub("(?m)^functions_sha256=.*", own, text)
        (self.out / SCRIPT).write_text(text)
        file = self.out / "run.json"
        record = json.loads(file.read_text())
        record["job"] |= {"script_sha256": sha256(self.out / SCRIPT),
                          "functions_sha256": sha256(self.out / FUNCTIONS)}
        file.write_text(json.dumps(record, indent=2) + "\n")

    def start(
        self, act: str, number: str, script: Path | None = None
    ) -> subprocess.Popen[str]:
        """Start the job with the job number `number`; the fake Apptainer runs the shell code `act`.

        `script` is the batch system's copy of the job script, if it has one.
        """
        (self.root / "bin/act").write_text(act)
        return subprocess.Popen(
            ["sh", str(script or self.out / SCRIPT)], cwd=self.out, text=True,
            start_new_session=True,
            env={"HOME": "/home/x y", "PATH": f"{self.root / 'bin'}:/usr/bin:/bin",
                 self.job.scheduler.number: number, "SLURM_JOB_NODELIST": "n[1-2]", "LEAK": "1",
                 "APPTAINER_BIND": "/w:/usr", "APPTAINER_OVERLAY_IMAGE": "/w.img",
                 "APPTAINERENV_LEAK": "1", "SINGULARITYENV_LEAK": "1",
                 "SINGULARITY_BIND": "/w:/usr",
                 "TMPDIR": str(self.root / "tmp"), "PMIX_RANK": "a b $(touch owned)"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )

    def run(
        self, act: str = "", number: str = "7", script: Path | None = None
    ) -> tuple[int, str]:
        """Run the job to its end; return its exit status and its output."""
        with self.start(act, number, script) as child:
            said, _ = child.communicate(timeout=300)
        return child.returncode, said

    def recorded(self, name: str) -> list[str]:
        return (self.root / "bin" / name).read_text().split("\0")[:-1]

    @property
    def requeued(self) -> bool:
        return (self.root / "bin/requeued").exists()


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def describe(root: Path, name: str, changes: dict[str, Argument], cluster: Cluster) -> Job:
    """Return a job of RECIPE whose image, data and run directory are below `root`."""
    recipe = library.load(RECIPE)
    image, data = root / "image.sif", root / "data"
    built = BuiltImage(recipe.recipe.image.name, "apptainer", str(image), "sha256:" + "2" * 64,
                       "3" * 64, 1)
    engine = Apptainer(str(root / "bin/apptainer"))
    request = Request(recipe, engine, changes, queued=True)
    known = DataRecord(name="fashion-mnist", path=str(data), sha256="4" * 64)
    return Job(request, cluster, built, [known], root / name)


def make(
    root: Path, name: str = "run", changes: dict[str, Argument] | None = None,
    cluster: Cluster | None = None,
) -> Place:
    job = describe(root, name, changes or {}, cluster or Cluster(mpi="pmi2"))
    for folder in (root / "bin", root / "tmp", root / "data", job.directory / job_chain.FOLDER):
        folder.mkdir(parents=True)
    (root / "data/dataset.json").write_text("{}")
    Path(job.built.reference).write_text("sif")
    built = replace(job.built, digest=f"sha256:{sha256(root / 'image.sif')}")
    data = [job.data[0].model_copy(update={"sha256": sha256(root / "data/dataset.json")})]
    job = replace(job, built=built, data=data)
    for name, text in STAND_INS.items():
        write_program(root / "bin" / name, text)
    (root / "bin/queue").touch()
    used = ImageRecord(name=built.name, engine=built.engine, reference=built.reference,
                       digest=built.digest, inputs=built.inputs)
    text = script.render(job)
    begun = JobRecord(scheduler=job.cluster.scheduler, cluster="test", name=job.name,
                      script_sha256=hashlib.sha256(text.encode()).hexdigest())
    run_directory.start(job.directory, job.request.recipe, dict(job.request.changes), used, data,
                 job.launch(), site=job.site_settings(), job=begun)
    (job.directory / "log.txt").touch()
    place = Place(root, job)
    place.install(script.render(job))
    return place


def shaped(job: Job, launcher: str = "srun", **resources: object) -> Job:
    """Return a copy of the job with another launcher or other resources."""
    file = job.request.recipe
    wanted = Resources.model_validate({**file.recipe.resources.model_dump(), **resources})
    recipe = file.recipe.model_copy(update={"resources": wanted, "launcher": launcher})
    return replace(job, request=replace(job.request, recipe=replace(file, recipe=recipe)))


CHECKPOINT = "mkdir -p checkpoints; touch checkpoints/step-{step:08d}.npz"


def noting(*, said: str = "", code: int = 0) -> str:
    """Return a fake program that appends its arguments to `NAME.argv`, and prints `said`."""
    return f'#!/bin/sh\nprintf "%s\\n" "$@" >>"$0.argv"\necho "{said}"\nexit {code}\n'


def warn(place: Place, act: str, number: str = "7") -> tuple[int, str]:
    """Run the job, and send it the time limit's signal SIGUSR1; return exit status and output."""
    (place.out / "up").unlink(missing_ok=True)
    with place.start(f"touch up; {act}", number) as child:
        end = time.monotonic() + 120
        while not (place.out / "up").exists() and time.monotonic() < end:
            time.sleep(0.05)
        os.kill(child.pid, signal.SIGUSR1)
        said, _ = child.communicate(timeout=300)
    return child.returncode, said


MPS = r"""#!/bin/sh
# The service with -f; without words, what tells it to end.
here=${0%/*}
if [ "$1" = -f ]; then
    echo "$CUDA_MPS_PIPE_DIRECTORY" >>"$here/mps.begun"
    until [ -e "$CUDA_MPS_PIPE_DIRECTORY/quit" ]; do sleep 0.1; done
    echo "$CUDA_MPS_PIPE_DIRECTORY" >>"$here/mps.ended"
else
    read -r word
    touch "$CUDA_MPS_PIPE_DIRECTORY/$word"
fi
"""


def sharing(root: Path) -> Place:
    """Create a run directory with a job on one node whose ranks share GPUs."""
    place = make(root)
    job = shaped(place.job, nodes=1, tasks_per_node=2, gpus_per_task=1, mps=2)
    place.install(script.render(job))
    return place
