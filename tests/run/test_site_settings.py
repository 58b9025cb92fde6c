"""Test that a run records what the site file adds to it, such as binds and variables.

The record also states which of these additions change the result.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from finished import DATA, SIF, launch
from refusals import refused
from samples import write_outcome
from trimaran import site_file
from trimaran.errors import RunError, UsageError
from trimaran.evidence import writing
from trimaran.recipes.library import RecipeFile
from trimaran.report import history, report, run_evidence
from trimaran.run import run_directory
from trimaran.run.site_settings import SiteSettings
from trimaran.verdict import run_verdict

NEUTRAL = [
    {"flags": ["--no-mount=bind-paths"]},
    {"flags": ["--no-mount=home,tmp", "--userns", "--nv"]},
    {"flags": ["--bind=/dev/hfi1_0"]},
    {"flags": ["--bind=/dev/infiniband:/dev/infiniband"]},
    {"flags": ["--bind=/sw:/mnt/sw:ro,/licences:/mnt/licences"]},
    {"flags": ["--mount=type=bind,source=/sw,destination=/mnt/sw,ro"]},
    {"env": {"NCCL_SOCKET_IFNAME": "ib0", "UCX_NET_DEVICES": "mlx5_0:1"}},
    {"env": {"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/8", "FI_PROVIDER": "cxi"}},
    {"env": {"PSM2_CUDA": "0", "HOROVOD_CYCLE_TIME": "1", "NCCL_TOPO_FILE": "/mnt/topo.xml"}},
    {"env": {"OMP_PLACES": "cores", "GLOO_SOCKET_IFNAME": "eth0"}},
    {"binds": {"/mnt/licences": "/sw/licences"}},
]
"""Typical settings of site files, which do not change the result."""

CHANGING = [
    # another file over the app, the interpreter, the data or what starts them
    ({"flags": ["--bind=/w/model.py:/opt/trimaran/lib/python3.11/site-packages/app/model.py"]},
     "the flag --bind to /opt/trimaran/"),
    ({"flags": ["--bind=/mnt/a:/mnt/a,/w:/usr/lib"]}, "--bind to /mnt/a, /usr/lib"),
    ({"flags": ["--bind=/opt"]}, "--bind to /opt"),
    ({"flags": ["--bind=/w://usr/lib"]}, "--bind to //usr/lib"),
    ({"flags": ["--bind=/w:/mnt/../usr"]}, "--bind to /mnt/../usr"),
    ({"flags": ["--bind=/w:/.singularity.d/libs"]}, "--bind to /.singularity.d/libs"),
    ({"flags": ["--bind=/w:/data"]}, "--bind to /data"),
    ({"flags": ["--bind=/w:/initial.npz"]}, "--bind to /initial.npz"),
    ({"flags": ["--bind=/w:/opt/rocm-6.2/lib"]}, "--bind to /opt/rocm-6.2/lib"),
    ({"flags": ["--bind=/dev/zero:/dev/urandom"]}, "--bind to /dev/urandom"),
    ({"flags": ["--bind=/w.img:/mnt/x:image-src=/"]}, "--bind to ?"),
    ({"flags": ["--bind=/w:mnt"]}, "--bind to mnt"),
    ({"flags": ["--bind"]}, "the flag --bind"),
    ({"flags": ["--mount=type=bind,source=/w,destination=/usr"]}, "--mount to /usr"),
    ({"flags": ["--mount=type=bind,source=/w,dst=/mnt/a,dst=/usr"]}, "--mount to ?"),
    ({"flags": ["--mount=type=tmpfs,destination=/mnt/a"]}, "--mount to ?"),
    ({"binds": {"/usr/lib": "/w"}}, "the bind to /usr/lib"),
    # options that give the app variables, a home, another layer, another program
    *(({"flags": [flag]}, f"the flag {flag.partition('=')[0]}") for flag in (
        "--env=SEED=1", "--env-file=/w/env", "--overlay=/w/o.img", "--home=/w", "--pwd=/w",
        "--app=other", "--workdir=/w", "--scratch=/mnt", "--no-mount=proc", "--no-mount",
        "--cpus=1", "--fakeroot", "--fusemount=x", "--security=x", "--unknown", "--nv=x",
        "--no-eval=false", "--cleanenv=false",
    )),
    # variables that apps, their libraries, the interpreter or the loader of programs read
    *(({"env": {name: value}}, f"the variable {name}") for name, value in (
        ("PYTHONPATH", "/mnt/sw"), ("OMP_NUM_THREADS", "1"), ("CUDA_VISIBLE_DEVICES", "0"),
        ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1"), ("NVIDIA_TF32_OVERRIDE", "1"),
        ("TF_DETERMINISTIC_OPS", "0"), ("XLA_FLAGS", "x"), ("MKL_CBWR", "AVX2"),
        ("RANK", "0"), ("WORLD_SIZE", "1"), ("OMPI_COMM_WORLD_RANK", "0"), ("HOROVOD_RANK", "0"),
        ("HOROVOD_SIZE", "1"), ("MASTER_ADDR", "n1"), ("GLIBC_TUNABLES", "x"), ("SEED", "3"),
        ("BASH_ENV", "/mnt/x"), ("NCCL", "x"), ("nccl_debug", "x"), ("XNCCL_DEBUG", "x"),
        ("NCCL_NET_PLUGIN", "/mnt/sw/lib.so"), ("UCX_MODULE_DIR", "./x"),
        ("OMPI_MCA_mca_base_component_path", "+:/mnt/sw"), ("FI_PROVIDER_PATH", "~/x"),
    )),
]


@pytest.mark.parametrize("facts", NEUTRAL)
def test_network_devices_and_places_are_neutral(facts: dict[str, object]) -> None:
    assert SiteSettings.model_validate(facts).changes == []


@pytest.mark.parametrize(("facts", "named"), CHANGING)
def test_whatever_else_a_site_file_adds_is_a_change(facts: dict[str, object], named: str) -> None:
    [change] = SiteSettings.model_validate(facts).changes
    assert named in change


@pytest.mark.parametrize(("name", "value", "private"), [
    ("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/8", True),
    ("OMPI_MCA_oob_tcp_if_include", "ib0,192.168.1.17", True),
    ("NCCL_COMM_ID", "login1:4000", True),
    ("GLOO_SOCKET_IFNAME", "fe80::1", True),
    ("OMPI_MCA_orte_precondition_transports", "0f0f-1e1e", True),
    ("PSM3_UUID", "5", True),
    ("NCCL_TOPO_FILE", "/mnt/topo.xml", True),
    ("NCCL_SOCKET_IFNAME", "ib0", False),
    ("UCX_NET_DEVICES", "mlx5_0:1,mlx5_1:1", False),
    ("UCX_TLS", "ib,sm,self", False),
    ("NCCL_IB_HCA", "^=mlx5_3:1", False),
    ("FI_PROVIDER", "tcp;ofi_rxm", False),
    ("NCCL_DEBUG_FILE", "fabric/nccl.%h.%p", False),
])
def test_evidence_has_no_address_and_no_key(name: str, value: str, private: bool) -> None:
    facts = SiteSettings(env={name: value})
    assert facts.changes == []
    assert facts.private()["env"] == ({name} if private else set())


def finish(directory: Path, recipe: RecipeFile, facts: SiteSettings) -> None:
    """Create the directory of a completed run that met the expectations of its recipe.

    The record of the run contains the container image `SIF` and the site settings `facts`.
    """
    spec = launch(recipe, {}, SIF, site=facts)
    record = run_directory.start(directory, recipe, {}, SIF, [DATA], spec, site=facts)
    [use] = recipe.recipe.data.values()
    write_outcome(directory, 0.95, counts=use.samples)
    run_directory.finish(directory, record, "completed", 0)


EVIL = SiteSettings(
    flags=["--bind=/home/me/model.py:/opt/trimaran/model.py", "--no-mount=bind-paths"],
    env={"API_KEY": "hush", "NCCL_SOCKET_IFNAME": "ib0"},
)


def test_a_changed_experiment_has_no_reference(recipe: RecipeFile, own_place: Path) -> None:
    finish(own_place / "run", recipe, EVIL)
    record, verdict = report.write(own_place / "run")
    assert verdict.outcome == "NO REFERENCE"
    assert verdict.reasons == [
        "the site file changes the experiment (the flag --bind to /opt/trimaran/model.py,"
        " the variable API_KEY)"
    ]
    assert record.site == EVIL
    for name in ("report.md", "report.html"):
        assert "NCCL_SOCKET_IFNAME=ib0" in (own_place / "run" / name).read_text()


def test_a_neutral_one_is_judged(recipe: RecipeFile, own_place: Path) -> None:
    facts = SiteSettings(flags=["--no-mount=bind-paths"], env={"NCCL_SOCKET_IFNAME": "ib0"})
    finish(own_place / "run", recipe, facts)
    assert report.write(own_place / "run")[1].outcome == "PASS"


def test_evidence_names_what_was_changed_and_no_folder_and_no_value(
    recipe: RecipeFile, own_place: Path
) -> None:
    finish(own_place / "run", recipe, EVIL)
    record, verdict = report.write(own_place / "run")
    file = own_place / "evidence.json"
    writing.write(own_place / "run", record, verdict, file)
    text = file.read_text()
    assert "hush" not in text
    assert "/home/me" not in text
    found = json.loads(text)
    assert found["run"]["site"] == {
        "flags": ["--no-mount=bind-paths"], "env": {"NCCL_SOCKET_IFNAME": "ib0"}, "binds": {},
        "devices": [], "fabric": None, "libraries": [],
        "changes": EVIL.changes,
    }
    run_evidence.RunEvidence.model_validate(found)
    passed = {**found, "verdict": {"outcome": "PASS", "reasons": [], "rows": []}}
    row = found["verdict"]["rows"][0] | {"outcome": "PASS"}
    passed["verdict"]["rows"] = [row]
    with pytest.raises(ValidationError, match=", ".join(EVIL.changes)):
        run_evidence.RunEvidence.model_validate(passed)
    found["run"]["site"]["env"] = {"SEED": "1"}
    with pytest.raises(ValidationError, match="SEED"):
        run_evidence.RunEvidence.model_validate(found)


def test_evidence_of_a_changed_experiment_is_not_among_the_earlier(
    recipe: RecipeFile, own_place: Path, checkout: Path
) -> None:
    finish(own_place / "run", recipe, EVIL)
    record, verdict = report.write(own_place / "run")
    file = checkout / "site/results" / recipe.name / "2026-01-01-here.json"
    file.parent.mkdir(parents=True)
    writing.write(own_place / "run", record, verdict, file)
    finish(own_place / "other", recipe, SiteSettings())
    other = run_directory.load(own_place / "other")
    found = history.find(recipe, {}, other.started)
    assert (found.runs, found.others, found.faults) == ([], 1, [])


@pytest.mark.parametrize("lost", [
    {"flags": ["--nv"]}, {"env": {"NCCL_DEBUG": "INFO"}}, {"binds": {"/mnt/sw": "/sw"}},
])
def test_a_record_that_its_command_contradicts_is_not_judged(
    recipe: RecipeFile, own_place: Path, lost: dict[str, object]
) -> None:
    finish(own_place / "run", recipe, SiteSettings())
    path = own_place / "run/run.json"
    record = json.loads(path.read_text())
    record["site"] |= lost
    path.write_text(json.dumps(record))
    with refused("run-inconsistent", kind=RunError) as caught:
        run_verdict.judge(own_place / "run")
    assert re.search("site_|mounts", caught.value.message)


@pytest.mark.parametrize("place", [
    "/.singularity.d/env", "/singularity", "/initial.npz", "//usr/lib", "/opt/rocm/lib", "/lib32",
])
def test_no_bind_of_the_site_file_hides_a_part_of_the_container(tmp_path: Path, place: str) -> None:
    file = tmp_path / "site.yaml"
    file.write_text(f"binds: {{/w: {place}}}\n")
    with pytest.raises(UsageError, match="would hide"):
        site_file.load(file)
