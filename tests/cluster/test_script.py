"""The script of a job, run by the shell with stand-ins for Slurm's commands and Apptainer.

tests/integration/test_cluster.py uses the real programs. test_hostile_script.py tests paths and
values that contain shell commands.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from commandline import of_run
from goldens import (
    CHAINED,
    FOLDER,
    JOBS,
    PBS,
    SLURM,
    TOGETHER,
    chained_script,
    job_script,
    together_script,
)
from jobplaces import CHECKPOINT, RECIPE, SRUN, Place, describe, make, shaped, warn
from refusals import refused
from trimaran import hostfacts
from trimaran.cluster import script
from trimaran.cluster.scheduler import Shape
from trimaran.engines import commands
from trimaran.errors import UsageError
from trimaran.hostfacts import HostFacts
from trimaran.launch.specification import quote
from trimaran.recipes import library
from trimaran.run import carriers, job_chain, run_directory
from trimaran.site_file import Cluster
from trimaran.verdict import run_verdict

VARIANTS: dict[str, tuple[Cluster, dict[str, object], str]] = {
    **{name: (cluster, {}, "srun") for name, cluster in JOBS.items()},
    "elastic": (SLURM, {"min_nodes": 1}, "srun"),
    "elastic-torchrun": (SLURM, {"min_nodes": 1}, "torchrun"),
    "mps": (SLURM, {"tasks_per_node": 4, "gpus_per_task": 1, "mps": 2}, "srun"),
    "mpirun": (SLURM, {"tasks_per_node": 2}, "mpirun"),
    "mpirun-pbs": (PBS, {"tasks_per_node": 2}, "mpirun"),
    "fabric": (SLURM.model_copy(update={"fabric": "slingshot"}), {}, "srun"),
    "staged": (SLURM.model_copy(update={"stage_data": True}), {}, "srun"),
}
"""Name of a test case -> cluster settings, resources and launcher of the rendered script.

The first entries have golden files.
"""


@pytest.mark.parametrize("name", [*JOBS, *TOGETHER, *CHAINED])
def test_the_script_is_the_golden_file(name: str) -> None:
    assert variant(name) == (FOLDER / name).read_text(), "run: make generate"


@pytest.mark.parametrize("name", [*VARIANTS, *TOGETHER, *CHAINED])
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    """Shellcheck reads script and functions together, and so finds variables that are never set."""
    (tmp_path / "job.sh").write_text(variant(name))
    (tmp_path / "functions.sh").write_text(script.functions())
    done = shellcheck(tmp_path, "--external-sources", "job.sh")
    assert done.stdout == ""
    assert done.returncode == 0


def test_shellcheck_finds_nothing_in_the_functions(tmp_path: Path) -> None:
    (tmp_path / "functions.sh").write_text(script.functions())
    done = shellcheck(tmp_path, "functions.sh")
    assert done.stdout == ""
    assert done.returncode == 0


def shellcheck(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["shellcheck", "--shell=sh", *words], cwd=folder, capture_output=True, text=True,
        check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )


@pytest.mark.parametrize("name", [*VARIANTS, *TOGETHER, *CHAINED])
def test_an_administrator_reads_it_in_two_minutes(name: str) -> None:
    text = variant(name)
    assert len(text.splitlines()) <= 120
    same = hashlib.sha256(script.functions().encode()).hexdigest()
    assert f"\nfunctions_sha256={same}\n" in text, "every job has the same functions"


def test_the_functions_have_the_values_of_the_tool() -> None:
    text = script.functions()
    flags = text[text.index("for flag in "):].partition("; do")[0].replace("\\\n", " ").split()[3:]
    assert flags == [flag for some in hostfacts.FLAGS.values() for flag in some]
    assert f"{hostfacts.KFD}/*/properties" in text
    assert f"{hostfacts.DRM}/renderD$minor/" in text
    assert f'"$vendor" = {hostfacts.AMD} ]' in text
    assert f">> {hostfacts.CAP_SYS_RESOURCE} & 1" in text
    assert (f"for file in {run_directory.METRICS} {run_directory.RESULT} {carriers.LOG}; do"
            in text)
    for name in commands.PASSED_ON:
        assert f'if [ -n "${{{name}+set}}" ]; then set -- "$@" "{name}=${name}"; fi' in text
    facts = [f'"{name}": ${name}' for name in HostFacts.model_fields if name != "python"]
    assert f'\n{{{", ".join(facts)}, "python": null}}\n' in text
    for one in script.SCHEDULERS.values():
        assert one.name == "lsf" or all(
            quote(line.replace("(?:", "(")) in text for line in one.queued)
        assert f"{one.name}) printf {one.title} ;;" in text


def variant(name: str) -> str:
    """Return the job script of the example `name`, for an example site."""
    if name in TOGETHER:
        return together_script(TOGETHER[name])
    if name in CHAINED:
        return chained_script(CHAINED[name])
    cluster, resources, launcher = VARIANTS[name]
    return job_script(cluster, launcher, **resources)


def test_each_rank_gets_the_exact_command_and_what_its_launcher_says(place: Place) -> None:
    code, said = place.run()
    assert code == 0, said
    exact = of_run(place.job.request, place.job.built, place.job.folders, place.out)
    assert place.recorded("argv") == list(exact.argv[1:])
    passed = dict(entry.split("=", 1) for entry in place.recorded("env"))
    assert passed["APPTAINERENV_SLURM_PROCID"] == "1"
    assert passed["APPTAINERENV_SLURM_STEP_NUM_TASKS"] == "2"
    assert passed["APPTAINERENV_PMIX_RANK"] == "a b $(touch owned)"
    assert passed["APPTAINERENV_MASTER_PORT"] == "20017"
    assert passed["APPTAINERENV_OMP_NUM_THREADS"] == "1"
    assert "LEAK" not in passed
    assert not list(place.root.rglob("owned"))


def test_a_run_says_queued_then_on_which_nodes_it_was_and_how_it_ended(place: Place) -> None:
    assert run_directory.load(place.out).status == "queued"
    place.run('echo "{}" >metrics.jsonl')
    found = run_directory.load(place.out)
    assert (found.status, found.exit_status) == ("completed", 0)
    assert len(found.hosts) == 2
    assert found.command.argv[0] == "srun"
    [link] = job_chain.read(place.out)
    assert (link.job, link.number) == ("7", 1)
    assert (place.out / "log.txt").read_text().count("to the log\n") == 2


@pytest.mark.parametrize(("code", "status"), [(4, "failed"), (75, "interrupted"), (1, "failed")])
def test_another_end_is_told_and_not_gone_on_with(place: Place, code: int, status: str) -> None:
    ended, _said = place.run(f"exit {code}")
    found = run_directory.load(place.out)
    assert (ended, found.exit_status, found.status) == (code, code, status)
    assert not place.requeued


def test_the_first_rank_that_ended_badly_is_the_cause(place: Place) -> None:
    """The recorded cause is the rank that failed first, not the exit status of srun.

    srun exits with the highest status, which belongs to a rank that srun killed later.
    """
    code, said = place.run("""
        echo 'srun: error: n1: task 0: Exited with exit code 3'
        echo 'srun: error: n2: task 1: Exited with exit code 143'
        exit 143""")
    assert code == 3, said
    assert run_directory.load(place.out).exit_status == 3


def test_what_slurm_has_ended_is_queued_again(place: Place) -> None:
    save = CHECKPOINT.format(step=5)
    ended = "slurmstepd-n1: error: *** STEP 7.1 ON n1 CANCELLED AT 2026-11-24T12:00:00 ***"
    _code, said = place.run(f"{save}; echo '{ended}'; exit 143")
    assert place.requeued, said
    [link] = job_chain.read(place.out)
    assert link.end is not None
    assert (link.end.exit_status, link.end.reason) == (75, "preempted: it goes on from step 5")


def test_what_srun_has_ended_is_not(place: Place) -> None:
    place.run("""
        echo 'srun: launch/slurm: _step_signal: Terminating StepId=7.1'
        echo 'slurmstepd-n1: error: *** STEP 7.1 ON n1 CANCELLED AT 2026-11-24T12:00:00 ***'
        exit 143""")
    assert not place.requeued


def test_an_elastic_run_goes_on_with_the_nodes_that_are_left(tmp_path: Path) -> None:
    place = make(tmp_path / "p")
    job = shaped(place.job, min_nodes=1)
    place.install(script.render(job))
    (place.root / "bin/scontrol").write_text(
        '#!/bin/sh\ncase $1 in show) printf "n1\\nn2\\n" ;; esac\n'
    )
    shebang, rest = SRUN.split("\n", 1)
    (place.root / "bin/srun").write_text("\n".join([
        shebang, 'echo "$*" >>"$0.calls"', "case $* in *--nodelist=n2*) exit 1 ;; esac", rest,
    ]))
    once = f"if [ -e {place.root}/lost ]; then exit 0; fi; touch {place.root}/lost; exit 69"
    code, said = place.run(f"{CHECKPOINT.format(step=9)}; {once}")
    assert code == 0, said
    first, second = job_chain.read(place.out)
    assert (len(first.hosts), len(second.hosts), second.step) == (2, 1, 9)
    assert first.end is not None
    assert "1 of 2 nodes" in first.end.reason
    assert "step 9" in first.end.reason
    assert place.recorded("argv")[-2:] == ["--resume=auto", "--ranks=2"]
    launches = [line for line in (place.root / "bin/srun.calls").read_text().splitlines()
                if "job.sh task" in line]
    assert "--nodes=2" in launches[0]
    assert "--exclude=n2" in launches[1]
    assert "--nodes=1 --ntasks=1" in launches[1]
    assert len(run_directory.load(place.out).resumed) == 1


def test_before_its_time_limit_it_is_requeued_and_goes_on(place: Place) -> None:
    save = CHECKPOINT.format(step=12)
    _code, said = warn(place, f"sleep 1; {save}; exit 75")
    assert place.requeued, said
    [link] = job_chain.read(place.out)
    assert link.end is not None
    assert (link.step, link.end.step, link.end.exit_status) == (0, 12, 75)
    assert "step 12" in link.end.reason
    code, said = place.run()
    assert code == 0, said
    assert place.recorded("argv")[-1] == "--resume=auto"
    found = run_directory.load(place.out)
    assert found.status == "completed"
    assert len(found.resumed) == 1
    assert len(found.hosts) == 4


def test_the_clock_of_another_node_may_be_an_hour_behind(place: Place) -> None:
    warn(place, f"sleep 1; {CHECKPOINT.format(step=12)}; exit 75")
    behind = place.root / "bin/date"
    behind.write_text('#!/bin/sh\nexec /bin/date "$@" -d "1 hour ago"\n')
    behind.chmod(0o755)
    code, said = place.run()
    assert code == 0, said
    first, second = job_chain.read(place.out)
    assert second.end is not None
    assert second.end.ended < first.started
    found = run_directory.load(place.out)
    assert (found.status, found.exit_status) == ("completed", 0)
    assert 0 < found.seconds < 60
    assert not list(run_verdict.ended(found))


def test_a_signal_that_the_engine_passes_on_is_no_failure_where_there_is_a_checkpoint(
    place: Place,
) -> None:
    _code, said = warn(place, f"sleep 1; {CHECKPOINT.format(step=3)}; exit 138")
    assert place.requeued, said
    assert run_directory.load(place.out).status == "interrupted"


def test_a_chain_without_progress_stops_with_the_reason(place: Place) -> None:
    (place.out / "checkpoints").mkdir()
    (place.out / "checkpoints/step-00000012.npz").touch()
    code, said = warn(place, "sleep 1; exit 75")
    assert code == 75
    assert not place.requeued
    assert "no progress" in said
    assert "no progress" in (place.out / "log.txt").read_text()


def test_a_changed_image_or_other_data_start_no_rank(place: Place) -> None:
    (place.root / "data/dataset.json").write_text("[]")
    code, said = place.run()
    assert code == 65
    assert str(place.root / "data") in said
    (place.root / "data/dataset.json").write_text("{}")
    Path(place.job.built.reference).write_text("another")
    code, said = place.run(number="8")
    assert code == 65
    assert f"{place.job.built.reference} " in said
    assert "sha256:" in said
    Path(place.job.built.reference).unlink()
    code, said = place.run(number="9")
    assert code == 66
    assert f"{place.job.built.reference} " in said
    assert run_directory.load(place.out).status == "queued"
    assert not (place.root / "bin/argv").exists()


def test_an_unknown_mpi_is_refused_with_the_remedy(tmp_path: Path) -> None:
    code, said = make(tmp_path / "p", cluster=Cluster(mpi="openmpi")).run()
    assert code == 64
    assert "no --mpi=openmpi" in said
    assert "srun --mpi=list" in said


def test_a_second_job_of_a_run_that_goes_on_ends_at_once(place: Place) -> None:
    place.run("exit 1", number="7")
    (place.out / "job/link-0001.end.json").unlink()
    (place.root / "bin/queue").write_text("7 RUNNING\n")
    code, said = place.run(number="8")
    assert code == 73
    assert "job 7 runs in" in said


@pytest.mark.parametrize(
    ("scheduler", "seconds", "walltime"),
    [("slurm", 600, "00:10:00"), ("pbs", 601, "00:10:00"), ("lsf", 61, "00:02:00")],
)
def test_a_job_that_would_be_told_of_its_limit_at_once_is_refused(
    scheduler: str, seconds: int, walltime: str
) -> None:
    """A job is refused if its batch system would warn it at once: `signal_seconds` is too large.

    LSF rounds the time of the warning before the limit up to whole minutes.
    """
    cluster = Cluster(scheduler=scheduler, signal_seconds=seconds)
    job = shaped(describe(Path("/example"), "run", {}, cluster), walltime=walltime)
    with refused("walltime-too-short", "signal_seconds", walltime, kind=UsageError):
        script.render(job)
    fewer = cluster.model_copy(update={"signal_seconds": 59})
    assert script.render(replace(job, cluster=fewer))


def test_the_script_for_the_largest_machines_is_as_short_as_that_for_two_nodes() -> None:
    """Scripts for 2 and 2048 nodes have equally many lines: no line for each node or rank."""
    wanted = {"tasks_per_node": 8, "cpus_per_task": 7, "gpus_per_task": 1}
    texts = {}
    for nodes in (2, 2048):
        job = shaped(describe(Path("/example"), "run", {}, SLURM), nodes=nodes, **wanted)
        began = time.process_time()
        texts[nodes] = script.render(job).splitlines()
        assert time.process_time() - began < 1
    few, many = texts.values()
    assert len(few) == len(many)
    changed = [(one, other) for one, other in zip(few, many, strict=True) if one != other]
    assert changed == [
        ("#SBATCH --nodes=2", "#SBATCH --nodes=2048"), ("nodes=2", "nodes=2048"),
    ]
    assert "#SBATCH --ntasks-per-node=8" in many
    assert "tasks_per_node=8" in many


def test_the_shape_of_a_job_for_the_largest_machines() -> None:
    recipe = library.load(RECIPE).recipe
    wanted = {"nodes": 2048, "tasks_per_node": 8, "cpus_per_task": 7, "gpus_per_task": 1}
    large = recipe.model_copy(
        update={"resources": recipe.resources.model_copy(update=wanted)}
    )
    assert Shape.of(large) == Shape(2048, 8, 7, 8, "00:10:00", ranks_told=True)
    inside = large.model_copy(update={"launcher": "torchrun"})
    assert Shape.of(inside) == Shape(2048, 1, 56, 8, "00:10:00")
