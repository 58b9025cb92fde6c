"""The profile of a cluster's fabric in a job: variables, libraries, devices, refusals, logs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from goldens import FABRICS, FOLDER, LSF, PBS, SLURM, fabric_lines, fabrics_text, job_script
from jobplaces import SRUN, Place, make, write_program
from trimaran.cluster import job_fabric, script
from trimaran.run import job_chain, run_directory
from trimaran.run.fabrics import ACCELERATORS, LOGGING, PROFILES
from trimaran.site_file import Cluster, FabricName

WARN = Cluster(mpi="pmi2", fabric="infiniband", fabric_missing="warn")

NCCL = """\
mkdir -p fabric
cat >fabric/nccl.n1.7 <<'END'
n1:7:7 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.0.0.1<0>
n1:7:7 [0] NCCL INFO Using network IB
n1:7:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA
END
"""
"""Log lines of NCCL as a rank prints them; the format is from NCCL's issues 952 and 1814."""


def at_place(tmp_path: Path, cluster: Cluster, **variables: str) -> Place:
    """Create a run directory, in whose job script some shell variables get other values.

    With these values, a test chooses the devices and libraries that the job looks for.
    """
    place = make(tmp_path / "p", cluster=cluster)
    text = (place.out / script.SCRIPT).read_text()
    for name, value in variables.items():
        text, found = re.subn(rf"\b{name}=('[^']*'|\S*)", f"{name}='{value}'", text)
        assert found == 1
    place.install(text)
    return place


def lines_of(place: Place) -> dict[str, int]:
    rows = (place.out / "fabric.log").read_text().splitlines()
    return {text: int(lines) for lines, text in (row.split(maxsplit=1) for row in rows)}


def test_the_profiles_are_the_golden_file() -> None:
    assert fabrics_text() == (FOLDER / "fabrics.txt").read_text(), "run: make generate"


@pytest.mark.parametrize(("fabric", "image"), FABRICS.values())
def test_every_batch_system_gets_the_same_profile(fabric: FabricName, image: str) -> None:
    added = [fabric_lines(cluster.model_copy(update={"env": {}}), fabric, image)
             for cluster in (SLURM, PBS, LSF)]
    assert added[0] == added[1] == added[2]
    assert len(job_script(SLURM.model_copy(update={"fabric": fabric}),
                          image=image).splitlines()) <= 120


def test_a_profile_is_consistent_data() -> None:
    [table] = re.findall(r"(?m)^fabrics='([^']*)'$", script.functions())
    shown = [word for line in table.splitlines() for word in line.split()[1:]]
    for profile in PROFILES.values():
        for one in (*LOGGING, *profile.settings):
            assert ";" not in one.value
            assert "'" not in one.value
            assert one.source
        assert all(any(device.startswith(word.rstrip("*")) for word in shown)
                   for device in profile.devices), "functions.sh shows the devices of every profile"
        for accelerator in ACCELERATORS:
            names = [one.name for one in profile.settings if accelerator in one.on]
            assert len(names) == len(set(names))
        for library in profile.libraries:
            assert library.source
            assert all(place.endswith(f"/{library.name}") for place in library.places)


def test_a_job_of_one_node_and_a_cluster_without_fabric_get_nothing() -> None:
    assert job_fabric.of(Cluster(fabric="slingshot"), "torch-cuda13", nodes=1) == \
        job_fabric.JobFabric()
    assert job_fabric.of(Cluster(), "torch-cuda13", nodes=2).assignments(overridden=()) == []


def test_recipe_and_site_file_override_a_profile(tmp_path: Path) -> None:
    cluster = Cluster(mpi="pmi2", fabric="infiniband", env={"UCX_TLS": "all", "PSM2_CUDA": "0"})
    place = at_place(tmp_path, cluster, fabric_devices="/dev/nul*")
    own = {"OMPI_MCA_pml": "ob1", "UCX_LOG_FILE": "x"}
    request, file = place.job.request, place.job.request.recipe
    file = replace(file, recipe=file.recipe.model_copy(update={"env": own}))
    job = replace(place.job, request=replace(request, recipe=file))
    text = script.render(job).replace("'/dev/infiniband/uverbs*'", "'/dev/nul*'")
    place.install(text)
    code, said = place.run()
    assert code == 0, said
    passed = dict(entry.split("=", 1) for entry in place.recorded("env"))
    for name, value in {"UCX_TLS": "all", "OMPI_MCA_pml": "ob1", "UCX_LOG_FILE": "x",
                        "UCX_LOG_LEVEL": "info", "PSM2_CUDA": "0"}.items():
        assert passed[f"APPTAINERENV_{name}"] == value
    site = job.site_settings()
    assert site.fabric == "infiniband"
    assert site.env == {name: passed[f"APPTAINERENV_{name}"] for name in site.env}
    assert {"UCX_TLS", "UCX_LOG_LEVEL"} < set(site.env)
    assert not {"OMPI_MCA_pml", "UCX_LOG_FILE"} & set(site.env), "the recipe sets these itself"
    assert site.changes == []


def test_libraries_of_the_node_are_found_and_bound(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    for path in (own / "libfabric.so.1", other / "libfabric.so.1", other / "libcxi.so.1"):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    table = ";".join((f"libcxi.so.1 {own}/libcxi.so.1 {tmp_path}/oth*/libcxi.so.1",
                      f"libfabric.so.1 {own}/libfabric.so.1 {other}/libfabric.so.1",
                      f"-libjson-c.so.3 {own}/libjson-c.so.3"))
    place = at_place(tmp_path, Cluster(mpi="pmi2", fabric="slingshot"), fabric_devices="/dev/nul*",
                     fabric_libraries=table)
    code, said = place.run()
    assert code == 0, said
    passed = dict(entry.split("=", 1) for entry in place.recorded("env"))
    assert passed["APPTAINER_CONTAINLIBS"] == f"{other}/libcxi.so.1,{own}/libfabric.so.1"
    assert passed["APPTAINERENV_FI_PROVIDER"] == "cxi"


def test_folders_of_the_site_file_come_first() -> None:
    cluster = Cluster(fabric="slingshot", fabric_folders=(Path("/sw/ofi"),))
    [plugin] = [one for one in job_fabric.of(cluster, "torch-cuda13", nodes=2).libraries
                if one.name == "libnccl-net.so"]
    assert plugin.places[0] == "/sw/ofi/libnccl-net.so"


@pytest.mark.parametrize(("fabric", "devices", "named"), [
    ("infiniband", "", "no device /dev/infiniband/uverbs*"),
    ("slingshot", "/dev/nul*", "no libcxi.so.1 in /nowhere/libcxi.so.1 /nor*/libcxi.so.1"),
])
def test_a_node_without_the_fabric_starts_no_rank(
    tmp_path: Path, fabric: FabricName, devices: str, named: str
) -> None:
    cluster = Cluster(mpi="pmi2", fabric=fabric)
    changes = {"fabric_devices": devices} if devices else {}
    if fabric == "slingshot":
        changes["fabric_libraries"] = "libcxi.so.1 /nowhere/libcxi.so.1 /nor*/libcxi.so.1"
    place = at_place(tmp_path, cluster, **changes)
    code, said = place.run("touch started")
    assert code == 69, said
    refusal = job_chain.refusal(place.out)
    assert refusal is not None
    assert refusal.exit_status == 69
    assert f": fabric {fabric}: {named}" in refusal.reason
    assert "fabric_missing: warn" in said
    assert not (place.out / "started").exists()
    assert not job_chain.read(place.out)


def test_an_image_without_a_library_starts_no_rank(tmp_path: Path) -> None:
    place = at_place(tmp_path, Cluster(mpi="pmi2", fabric="infiniband"), fabric_devices="/dev/nul*")
    engine = place.root / "bin/apptainer"
    engine.write_text(engine.read_text().replace(
        "case $2 in exec)",
        'case "$*" in *libibverbs*) echo "libibverbs.so.1 "; esac\ncase $2 in exec)'))
    code, said = place.run("touch started")
    assert code == 69, said
    refusal = job_chain.refusal(place.out)
    assert refusal is not None
    assert "no libibverbs.so.1 in the image" in refusal.reason


def test_with_warn_the_ranks_run_over_what_there_is_and_the_logs_are_kept(tmp_path: Path) -> None:
    place = at_place(tmp_path, WARN)
    code, said = place.run(f"""
        echo '[n1:1] mca: bml: Using tcp btl for send to [[1,1],1] on node n2'
        echo '{{"strategy": {{"name": "ddp", "backend": "gloo"}}}}' >environment.json
        printf 'a\\0\\377 Using network Socket\\n' >>log.txt
        {NCCL}""")
    assert code == 0, said
    log = (place.out / "log.txt").read_bytes().decode(errors="replace")
    assert "warning: " in log
    assert "fabric infiniband: no device /dev/infiniband/uverbs*" in log
    passed = dict(entry.split("=", 1) for entry in place.recorded("env"))
    assert "APPTAINERENV_UCX_TLS" not in passed, "nothing forbids TCP"
    assert passed["APPTAINERENV_UCX_LOG_LEVEL"] == "info"
    assert lines_of(place) == {
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB": 1, "Using network IB": 1,
        "via NET/IB/0": 1, "Using tcp btl for send": 2, '"backend": "gloo"': 1,
        "Using network Socket": 2,
    }
    record = run_directory.load(place.out)
    assert record.fabric is not None
    assert record.fabric.backend == "gloo"
    assert "fabric.log" in record.files
    assert "10.0.0.1" not in (place.out / "fabric.log").read_text()
    assert "n1" not in (place.out / "fabric.log").read_text()


def test_the_networks_of_all_links_are_kept(tmp_path: Path) -> None:
    place = at_place(tmp_path, WARN)
    for network, number in (("IB", "7"), ("Socket", "8")):
        place.run(f"echo 'Using network {network}' >fabric/nccl.a.$$; exit 75", number)
    assert lines_of(place) == {"Using network IB": 2, "Using network Socket": 2}
    assert not list((place.out / "fabric").glob("*.a.1"))


def test_the_networks_of_a_killed_link_are_kept(tmp_path: Path) -> None:
    place = at_place(tmp_path, WARN)
    place.run("echo 'Using network Socket' >fabric/nccl.a.1; echo 'Using tcp btl for send'")
    (place.out / "job/link-0001.end.json").unlink()
    (place.out / "fabric.log").unlink()
    place.run("echo 'Using network IB' >fabric/nccl.a.1", "8")
    assert lines_of(place) == {"Using network Socket": 1, "Using tcp btl for send": 2,
                               "Using network IB": 1}, "two ranks print to the log"
    record = run_directory.load(place.out)
    assert record.fabric is not None
    assert len(record.fabric.slow) == 2


def test_no_planted_link_is_followed_or_written_to(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Using network Secret\n")
    place = at_place(tmp_path, WARN)
    code, _ = place.run(f"ln -sf {secret} fabric/nccl.n1.1; ln -sf {secret} fabric.log")
    assert code == 0
    assert secret.read_text() == "Using network Secret\n"
    assert not (place.out / "fabric.log").is_symlink()
    assert "Secret" not in (place.out / "fabric.log").read_text()


def test_a_job_without_fabric_keeps_no_log(place: Place) -> None:
    code, _ = place.run("mkdir fabric; echo 'Using network IB' >fabric/nccl.n1.1")
    assert code == 0
    assert not (place.out / "fabric.log").exists()
    assert run_directory.load(place.out).fabric is None
    assert json.loads((place.out / "run.json").read_text())["site"]["fabric"] is None


@pytest.mark.parametrize("wrong", [
    {"fabric": "token-ring"}, {"fabric_missing": "warn"}, {"fabric_folders": ["/sw"]},
    {"fabric": "efa", "fabric_missing": "ignore"},
    *({"fabric": "efa", "fabric_folders": [folder]}
      for folder in ("sw", "/", "/a b", "/a,b", "/a;b", "/a*", "/$(id)", "/a'b", "/a\n")),
])
def test_what_is_no_fabric_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="fabric"):
        Cluster.model_validate(wrong)


def test_the_reason_survives_an_srun_that_loses_what_the_nodes_print(tmp_path: Path) -> None:
    place = at_place(tmp_path, Cluster(mpi="pmi2", fabric="infiniband"))
    lost = SRUN.replace("trap : USR1", "exec 2>/dev/null; trap : USR1") \
        .replace('exit "$worst"', 'echo "srun: Force Terminated StepId=1.0"; exit 143')
    write_program(place.root / "bin/srun", lost)
    code, said = place.run()
    assert code == 69, said
    refused = job_chain.refusal(place.out)
    assert refused is not None
    assert "fabric infiniband: no device /dev/infiniband/uverbs*" in refused.reason
    assert refused.exit_status == 69
    assert not list((place.out / "job").glob("*.failed"))
