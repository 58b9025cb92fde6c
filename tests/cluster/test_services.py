"""Test jobs that load modules or start the Multi-Process Service; both are stand-ins."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobplaces import MPS, Place, make, noting, sharing, write_program
from trimaran.cluster import script
from trimaran.cluster.script import SCRIPT
from trimaran.run import job_chain, run_directory
from trimaran.site_file import Cluster

MODULES = Path("/etc/profile.d/lmod.sh")


def test_ranks_that_share_a_gpu_have_the_service_while_they_run(tmp_path: Path) -> None:
    place = sharing(tmp_path / "a place")
    write_program(place.root / "bin/nvidia-cuda-mps-control", MPS)
    code, said = place.run('test -e "$here/mps.begun" && ! test -e "$here/mps.ended"')
    assert code == 0, said + (place.out / "log.txt").read_text()
    folder = f"{place.root}/tmp/trimaran-mps-7"
    assert (place.root / "bin/mps.begun").read_text() == f"{folder}\n"
    assert (place.root / "bin/mps.ended").read_text() == f"{folder}\n"
    assert not Path(folder).exists()
    passed = place.recorded("env")
    assert f"APPTAINERENV_CUDA_MPS_PIPE_DIRECTORY={folder}" in passed
    assert any(f'"destination={folder}"' in one for one in passed)


def test_without_the_service_no_rank_is_started(tmp_path: Path) -> None:
    place = sharing(tmp_path / "p")
    code, said = place.run()
    assert code == 69
    assert "Multi-Process Service" in said
    assert " nvidia-cuda-mps-control " in (place.out / "log.txt").read_text()
    assert run_directory.load(place.out).status == "failed"
    assert not (place.root / "bin/argv").exists()


@pytest.fixture
def loading(tmp_path: Path) -> Place:
    """Create a job that finds Apptainer on PATH only after it has loaded a module."""
    place = make(tmp_path / "p", cluster=Cluster(mpi="pmi2", modules=("a/1", "apptainer/1.4")))
    (place.root / "sw").mkdir()
    for name in ("apptainer", "act"):
        (place.root / "sw" / name).symlink_to(place.root / "bin" / name)
    text = (place.out / SCRIPT).read_text()
    engine = str(place.root / "bin/apptainer")
    assert f"engine={engine}" in text
    place.install(text.replace(f"engine={engine}", "engine=/not/here"))
    return place


def test_a_module_that_is_a_program_is_loaded_on_each_node_and_for_each_rank(
    loading: Place,
) -> None:
    write_program(loading.root / "bin/module", noting())
    code, said = loading.run()
    assert code == 0, said
    words = (loading.root / "bin/module.argv").read_text().split()
    assert words == ["load", "a/1", "apptainer/1.4"] * 4


def test_modules_are_a_function_of_the_sites_profile(loading: Place) -> None:
    """A job can load modules if `module` is a shell function of the site's profile.

    The stand-in for Lmod's profile sets PATH, and reads variables that are not set.
    """
    profile = loading.root / "lmod.sh"
    (loading.root / "bin/apptainer").rename(loading.root / "sw/apptainer")
    profile.write_text(
        f'echo "$NOT_SET" >/dev/null\nmodule() {{ PATH={loading.root}/sw:$PATH; echo "$@" >>'
        f"'{loading.root}/loaded'; }}\n"
    )
    assert str(MODULES) in script.functions()
    functions = script.functions().replace(str(MODULES), f"'{profile}'")
    loading.install((loading.out / SCRIPT).read_text(), functions)
    code, said = loading.run()
    assert code == 0, said
    assert (loading.root / "loaded").read_text() == "load a/1 apptainer/1.4\n" * 4
    assert (loading.root / "sw/argv").exists()


def test_what_starts_the_tasks_may_be_in_a_module_itself(tmp_path: Path) -> None:
    """`mpirun` can come from a module, such as Open MPI on a cluster with PBS.

    A job that cannot load the module is refused. The stand-in replaces Lmod.
    """
    cluster = Cluster(scheduler="pbs", modules=("apptainer/1.4", "openmpi/4.1"))
    place = make(tmp_path / "p", cluster=cluster)
    (place.root / "sw").mkdir()
    (place.root / "bin/mpirun").rename(place.root / "sw/mpirun")
    profile = place.root / "lmod.sh"
    profile.write_text(f"module() {{ PATH={place.root}/sw:$PATH; }}\n")
    functions = script.functions().replace(str(MODULES), f"'{profile}'")
    place.install((place.out / SCRIPT).read_text(), functions)
    code, said = place.run(number="7.server")
    assert code == 0, said
    profile.write_text("module() { return 1; }\n")
    code, said = place.run(number="8.server")
    assert code == 69
    refused = job_chain.refusal(place.out)
    assert refused is not None
    assert "module load apptainer/1.4 openmpi/4.1" in refused.reason


def test_a_module_that_is_not_there_starts_no_rank(loading: Place) -> None:
    write_program(loading.root / "bin/module", "#!/bin/sh\necho 'unknown module' >&2\nexit 1\n")
    code, said = loading.run()
    assert code == 69
    assert "module load a/1 apptainer/1.4" in said
    assert not (loading.root / "bin/argv").exists()


@pytest.mark.skipif(MODULES.exists(), reason="this machine has modules")
def test_a_node_without_modules_starts_no_rank(loading: Place) -> None:
    code, said = loading.run()
    assert code == 69
    assert "'module'" in said
