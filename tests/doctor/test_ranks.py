"""Checks of `trimaran doctor` on the launchers, such as srun and mpirun, that start the ranks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import hosts
from hosts import caused, finding
from trimaran.doctor import ranks
from trimaran.doctor.facts import Fact, NodeFacts
from trimaran.doctor.situation import Situation
from trimaran.site_file import Cluster

SRUN = "resnet-imagenet/cpu-2node-smoke"
PMIX = Cluster(partition="main")


def by_mpirun(known: NodeFacts, login: NodeFacts | None = None) -> Situation:
    """Return the input of the checks for a recipe whose ranks are started by the host's mpirun."""
    about = hosts.situation(known, recipe=SRUN, cluster=PMIX, login=login)
    assert about.recipe is not None
    recipe = about.recipe.recipe.model_copy(update={"launcher": "mpirun"})
    file = about.recipe.__class__(
        about.recipe.name, about.recipe.path, about.recipe.sha256, recipe, about.recipe.card
    )
    return Situation(known, about.site, login, PMIX, file, about.target, about.image)


def test_a_good_node_has_no_finding() -> None:
    known = hosts.facts_of("gpu-a100")
    for about in (hosts.situation(known, recipe=SRUN, cluster=PMIX), by_mpirun(known)):
        assert {one.level for one in ranks.check(about)} == {"ok"}


@pytest.mark.parametrize("host", ["gpu-a100", "cpu-hardened"])  # two ways to print the list
def test_a_flavour_that_srun_lacks_is_a_failure(host: str) -> None:
    known = hosts.facts_of(host)
    wrong = Cluster(mpi="pmix_v9")
    found = ranks.check(hosts.situation(known, recipe=SRUN, cluster=wrong))
    assert "pmix_v9" in caused("pmi-flavour", found, "fail").cause
    assert "pmi2" in caused("pmi-flavour", found).cause
    caused("pmi-flavour", ranks.check(hosts.situation(known, cluster=wrong)), "warn")
    right = ranks.check(hosts.situation(known, recipe=SRUN, cluster=PMIX))
    assert finding("pmi-flavour", right).level == "ok"


def test_an_srun_that_fails_has_no_flavours() -> None:
    said = "srun: error: Could not establish a configuration source"
    known = NodeFacts("n1", {"srun-mpi": Fact(0, said)})
    assert "pmi-flavour" not in {
        one.id for one in ranks.check(hosts.situation(known, recipe=SRUN, cluster=PMIX))
    }


def test_a_flavour_that_open_mpi_does_not_know_is_a_warning() -> None:
    known = hosts.facts_of("gpu-a100")
    about = hosts.situation(known, recipe=SRUN, cluster=Cluster(mpi="pmi2"))
    assert "pmi2" in caused("pmi-image", ranks.check(about), "warn").cause


def test_an_old_pmix_is_a_warning() -> None:
    about = hosts.situation(hosts.facts_of("cpu-hardened"), recipe=SRUN, cluster=PMIX)
    assert "PMIx 1" in caused("pmix-version", ranks.check(about), "warn").cause


def test_mpich_of_the_host_cannot_start_open_mpi() -> None:
    known = hosts.facts_of("cpu-hardened")
    found = ranks.check(by_mpirun(known, login=known))
    assert "is MPICH" in caused("host-mpi", found, "fail").cause


@pytest.mark.parametrize(("path", "modules", "level"), [
    ("/usr/bin/mpirun", None, "fail"), ("/opt/mpich/bin/mpirun", None, "warn"),
    ("/opt/mpich/bin/mpirun", "loaded", "fail"), ("/usr/bin/mpirun", "failed", "warn"),
])
def test_a_job_may_have_another_mpirun_than_the_login_node(
    path: str, modules: str | None, level: str
) -> None:
    texts = {"mpirun-path": path, "mpirun-version": "HYDRA build details", "modules": modules}
    known = NodeFacts("login", {
        key: Fact(0, text) for key, text in texts.items() if text is not None
    })
    caused("host-mpi", ranks.check(by_mpirun(known)), level)


@pytest.mark.skipif(shutil.which("mpirun.mpich") is None, reason="MPICH is not installed")
def test_the_real_mpich_is_known(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/mpirun").symlink_to(str(shutil.which("mpirun.mpich")))
    known = hosts.facts_of(tmp_path)
    found = ranks.check(by_mpirun(known, login=known))
    assert "is MPICH" in caused("host-mpi", found, "fail").cause


@pytest.mark.parametrize(("said", "level"), [
    ("mpirun (Open MPI) 4.0.5", "ok"), ("mpirun (Open MPI) 5.0.11", "warn"),
    ("Intel(R) MPI Library for Linux* OS, Version 2021.9", "fail"), ("something", "warn"),
])
def test_other_mpis_are_told_apart(tmp_path: Path, said: str, level: str) -> None:
    hosts.program(tmp_path, "mpirun", f"echo '{said}'")
    known = hosts.facts_of(tmp_path)
    assert finding("host-mpi", ranks.check(by_mpirun(known, login=known))).level == level


def test_a_missing_mpirun_may_be_in_a_module(tmp_path: Path) -> None:
    known = hosts.facts_of(tmp_path)
    caused("host-mpi", ranks.check(by_mpirun(known)), "warn")
    caused("host-mpi", ranks.check(by_mpirun(known, login=known)), "fail")


def test_variables_of_another_job_are_told_without_their_values() -> None:
    leaked = {"PMIX_RANK": "0", "OMPI_COMM_WORLD_SIZE": "secret", "SBATCH_PARTITION": "x",
              "SLURM_JOB_ID": "7", "SLURM_CONF": "/etc/slurm.conf"}
    known = hosts.facts_of("gpu-a100", leaked)
    found = caused("leaked-variables", ranks.check(hosts.situation(known)), "warn")
    assert set(leaked) - {"SLURM_CONF"} == {
        name.strip() for name in found.cause.partition(":")[2].split(",")
    }
    assert not any("secret" in fact.text for fact in known.facts.values())
    node = ranks.check(hosts.situation(known, login=known))
    assert "leaked-variables" not in {one.id for one in node}


def test_a_cluster_without_its_commands_is_a_failure() -> None:
    about = hosts.situation(hosts.facts_of("gpu-a100"), cluster=Cluster(scheduler="pbs"))
    assert "qsub" in caused("batch-system", ranks.check(about), "fail").cause
