"""Checks of Apptainer, GPUs and the machine: each fault is reported, and only if it exists."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import hosts
from hosts import caused, finding
from trimaran.doctor import engine, gpus, image_facts, machine
from trimaran.doctor.findings import worst
from trimaran.engines import host
from trimaran.images import definition
from trimaran.recipes import library as recipe_library
from trimaran.site_file import Cluster

CLUSTER = Cluster(partition="main")


def change(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def a100(tmp_path: Path) -> Path:
    """Return a copy of the simulated node with four A100 GPUs, on which no check finds a fault."""
    return hosts.copy("gpu-a100", tmp_path)


def test_a_good_node_has_no_finding() -> None:
    known = hosts.facts_of("gpu-a100")
    for image in ("torch-cpu", "torch-cuda12"):
        about = hosts.situation(known, image=image)
        assert worst(engine.check(about)) == "ok"
        assert len(engine.check(about)) == len({one.id for one in engine.check(about)})
    assert worst(engine.check(hosts.situation(known, login=known, cluster=CLUSTER))) == "ok"


def test_a_hardened_machine_has_every_finding_about_the_kernel() -> None:
    known = hosts.facts_of("cpu-hardened")
    found = engine.check(hosts.situation(known, login=known, cluster=CLUSTER))
    assert "singularity-ce version 4.1.2" in caused("apptainer", found, "fail").cause
    assert "max_user_namespaces = 0" in caused("namespaces", found, "fail").cause
    caused("fuse", found, "warn")
    caused("squashfuse", found, "warn")
    here = engine.check(hosts.situation(known))
    caused("subuid", here, "warn")
    assert "1.0 GiB free" in caused("build-space", here, "warn").cause
    assert "0.5 GiB; mksquashfs uses up to 1.0 GiB" in caused("build-memory", here, "warn").cause
    # Without Apptainer the quickstart runs on the host: nothing here is a failure.
    caused("apptainer", here, "warn")


def test_on_the_login_node_of_a_cluster_the_kernel_of_other_nodes_is_unknown(a100: Path) -> None:
    hosts.program(a100, "unshare", "exit 1")
    known = hosts.facts_of(a100)
    caused("namespaces", engine.check(hosts.situation(known)), "fail")
    caused("namespaces", engine.check(hosts.situation(known, cluster=CLUSTER)), "warn")
    (a100 / "bin/apptainer").unlink()
    caused("namespaces", engine.check(hosts.situation(hosts.facts_of(a100))), "warn")


def test_an_old_or_broken_apptainer_is_told(a100: Path) -> None:
    known = hosts.facts_of(a100)
    old = (a100 / "bin/apptainer").read_text()
    hosts.program(a100, "apptainer", old.replace("1.3.6", "1.2.5").replace("--no-eval ", "")
                  .replace("--mksquashfs-args", ""))
    found = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert "1.2.5" in caused("apptainer", found, "warn").cause
    assert "--no-eval" in caused("apptainer-options", found, "fail").cause
    hosts.program(a100, "apptainer", old.replace("--mksquashfs-args", ""))
    known = hosts.facts_of(a100)
    found = engine.check(hosts.situation(known))
    assert "--mksquashfs-args" in caused("apptainer-options", found, "warn").cause
    found = engine.check(hosts.situation(known, login=known, cluster=CLUSTER))
    assert finding("apptainer-options", found).level == "ok"  # nothing is built on a node
    hosts.program(a100, "apptainer", "echo no good >&2; exit 3")
    broken = caused("apptainer", engine.check(hosts.situation(hosts.facts_of(a100))), "fail")
    assert "no good" in broken.cause
    assert str(a100 / "bin/apptainer") in broken.remedy


def test_the_lines_of_a_wrapper_before_the_version_are_left_out(a100: Path) -> None:
    old = (a100 / "bin/apptainer").read_text()
    hosts.program(a100, "apptainer", f"echo 'the module is deprecated' >&2\n{old}")
    found = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert finding("apptainer", found).level == "ok"
    assert finding("apptainer", found).cause.startswith("apptainer version 1.3.6")
    hosts.program(a100, "apptainer", "")
    silent = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert "silent, not Apptainer" in caused("apptainer", silent, "warn").cause


def test_an_apptainer_on_a_slow_file_system_is_not_broken(a100: Path) -> None:
    hosts.program(a100, "apptainer", "exit 124")
    slow = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert "within 5 s" in caused("apptainer", slow, "warn").cause
    assert "apptainer-options" not in {one.id for one in slow}


def test_options_are_unknown_without_the_text_of_the_help(a100: Path) -> None:
    old = (a100 / "bin/apptainer").read_text()
    hosts.program(a100, "apptainer", old.replace("exec)", "exec) exit 1;;\nnone)"))
    known = hosts.facts_of(a100)
    assert known.text("apptainer-build-lacks") == ""
    assert "apptainer-options" not in {one.id for one in engine.check(hosts.situation(known))}


PROFILE = "profile apptainer /usr/libexec/apptainer/bin/starter{,-suid} { userns, }"


def test_apparmor_may_allow_namespaces_to_apptainer_only(a100: Path) -> None:
    hosts.program(a100, "unshare", "exit 1")
    change(a100, "proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
    found = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert "apparmor_restrict_unprivileged_userns = 1" in caused("namespaces", found, "fail").cause
    change(a100, "etc/apparmor.d/apptainer", PROFILE)
    found = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert finding("namespaces", found).level == "ok"
    change(a100, "proc/sys/user/max_user_namespaces", "0\n")  # this refuses Apptainer, too
    caused("namespaces", engine.check(hosts.situation(hosts.facts_of(a100))), "fail")


@pytest.mark.parametrize(("rights", "level"), [("000001ffffffffff", "ok"),
                                               ("00000000a80425fb", "fail")])
def test_root_needs_no_namespaces(a100: Path, rights: str, level: str) -> None:
    hosts.program(a100, "unshare", "exit 1")
    hosts.program(a100, "id", "case $1 in -u) echo 0 ;; *) echo root ;; esac")
    change(a100, "proc/self/status", f"CapEff:\t{rights}\n")
    found = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert finding("namespaces", found).level == level


def test_a_node_without_apptainer_cannot_run_a_job(a100: Path) -> None:
    (a100 / "bin/apptainer").unlink()
    known = hosts.facts_of(a100)
    caused("apptainer", engine.check(hosts.situation(known)), "warn")
    caused("apptainer", engine.check(hosts.situation(known, login=known, cluster=CLUSTER)), "fail")


def test_a_module_that_is_not_there_is_told() -> None:
    known = hosts.facts_of("gpu-a100", modules="no-such-module/1.0")
    cluster = Cluster(modules=("no-such-module/1.0",))
    found = engine.check(hosts.situation(known, cluster=cluster))
    assert "no-such-module/1.0" in caused("modules", found, "warn").cause
    caused("modules", engine.check(hosts.situation(known, cluster=cluster, login=known)), "fail")


def test_setuid_needs_neither_namespaces_nor_squashfuse(a100: Path) -> None:
    starter = a100 / "usr/libexec/apptainer/bin/starter-suid"
    change(a100, "usr/libexec/apptainer/bin/starter-suid", "")
    starter.chmod(0o4755)
    hosts.program(a100, "unshare", "exit 1")
    (a100 / "bin/squashfuse_ll").unlink()
    found = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert finding("namespaces", found).level == "ok"
    assert finding("squashfuse", found).level == "ok"


def test_an_ordinary_user_needs_ranges_of_subordinate_ids(a100: Path) -> None:
    change(a100, "etc/subuid", "username:100000:65536\n")
    found = engine.check(hosts.situation(hosts.facts_of(a100)))
    assert "/etc/subuid" in caused("subuid", found, "warn").cause


@pytest.mark.parametrize(("driver", "image", "level"), [
    ("470.82.01", "torch-cuda12", "fail"), ("525.60.13", "torch-cuda12", "ok"),
    ("570.86.10", "torch-cuda13", "fail"), ("580.65.06", "torch-cuda13", "ok"),
])
def test_a_driver_is_compared_with_the_cuda_of_the_image(
    a100: Path, driver: str, image: str, level: str
) -> None:
    hosts.program(a100, "nvidia-smi", f"echo 'NVIDIA A100-SXM4-40GB, {driver}, 8.0, 40960 MiB'")
    known = hosts.facts_of(a100)
    found = engine.check(hosts.situation(known, image=image))
    assert finding("gpu-driver", found).level == level
    if level == "fail":
        assert driver in caused("gpu-driver", found).cause
        caused("gpu-driver", engine.check(
            hosts.situation(known, image=image, cluster=CLUSTER)), "warn")


def test_no_image_for_arm64_is_offered_for_an_older_driver(a100: Path) -> None:
    hosts.program(a100, "nvidia-smi", "echo 'NVIDIA GH200 120GB, 565.57.01, 9.0, 97871 MiB'")
    image, known = definition.load("torch-cuda13"), hosts.situation(hosts.facts_of(a100))
    remedies = [
        caused("gpu-driver", engine.check(replace(
            known, image=image_facts.of_image(definition.on(image, one)))), "fail").remedy
        for one in image.architectures
    ]
    assert ["torch-cuda12" in one for one in remedies] == [True, False]


def test_the_version_of_the_kernel_module_is_enough(a100: Path) -> None:
    (a100 / "bin/nvidia-smi").unlink()
    found = engine.check(hosts.situation(hosts.facts_of(a100), image="torch-cuda13"))
    assert "driver 550.54.15" in caused("gpu-driver", found, "fail").cause


@pytest.mark.parametrize(("capability", "image", "level"), [
    ("6.0", "torch-cuda13", "fail"), ("7.0", "torch-cuda13", "fail"),
    ("6.1", "torch-cuda12", "ok"), ("8.9", "torch-cuda12", "ok"),
    ("10.0", "torch-cuda12", "fail"), ("12.1", "torch-cuda13", "ok"),
    ("12.0", "tensorflow-cuda", "warn"), ("8.9", "tensorflow-cuda", "ok"),
])
def test_code_runs_on_the_gpus_that_nvidia_documents(
    a100: Path, capability: str, image: str, level: str
) -> None:
    hosts.program(a100, "nvidia-smi", f"echo 'Some GPU, 600.00, {capability}, 81559 MiB'")
    found = gpus.check(hosts.situation(hosts.facts_of(a100), image=image))
    assert finding("gpu-architecture", found).level == level
    if level != "ok":
        assert capability in caused("gpu-architecture", found).cause


def test_amd_drivers_and_gpus_are_compared_with_rocm(tmp_path: Path) -> None:
    root = hosts.copy("amd-mi250x", tmp_path)
    about = hosts.situation(hosts.facts_of(root), image="torch-rocm")
    assert worst(gpus.check(about)) == "ok"
    assert finding("gpu-missing", gpus.check(about)).cause == "2 x gfx90a"
    change(root, "sys/module/amdgpu/version", "6.2.4\n")
    change(root, "sys/class/kfd/kfd/topology/nodes/2/properties",
           "simd_count 256\ngfx_target_version 110000\n")
    change(root, "opt/rocm/lib/libamdhip64.so.7", "GLIBC_2.40")
    found = gpus.check(hosts.situation(hosts.facts_of(root), image="torch-rocm"))
    assert "6.2.4" in caused("gpu-driver", found, "warn").cause
    assert "gfx1100" in caused("gpu-architecture", found, "warn").cause
    assert "libamdhip64.so.7 (GLIBC_2.40)" in caused("glibc", found, "fail").cause


@pytest.mark.parametrize(("strategy", "level"), [("horovod", "fail"), ("ddp", "ok")])
def test_a_recipe_that_uses_horovod_needs_an_image_with_it(
    tmp_path: Path, strategy: str, level: str
) -> None:
    about = hosts.situation(hosts.facts_of(hosts.copy("amd-mi250x", tmp_path)), image="torch-rocm")
    assert about.image is not None
    known = recipe_library.load("resnet-imagenet/mi300x8-throughput")
    args = {**known.recipe.args, "strategy": strategy}
    recipe = replace(known, recipe=known.recipe.model_copy(update={"args": args}))
    without = replace(about.image, values={**about.image.values, "horovod": "no"})
    found = gpus.check(replace(about, image=without, recipe=recipe))
    assert finding("horovod", found).level == level
    if level != "ok":
        assert "Horovod" in caused("horovod", found, "fail").cause
    assert "horovod" not in {one.id for one in gpus.check(replace(about, recipe=recipe))}


def library(place: Path, version: str) -> bytes:
    """Compile a library that needs a symbol of this version of GLIBC."""
    (place / "libc.c").write_text("long trimaran_symbol(void) { return 1; }\n")
    (place / "versions").write_text(f"{version} {{ global: trimaran_symbol; }};\n")
    (place / "own.c").write_text("long trimaran_symbol(void);\n"
                                 "long use(void) { return trimaran_symbol(); }\n")
    for words in (
        ["libc.c", "-Wl,-soname,libc.so.6", "-Wl,--version-script=versions", "-o", "libc.so.6"],
        ["own.c", "./libc.so.6", "-o", "own.so"],
    ):
        subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", *words], cwd=place, check=True)
    return (place / "own.so").read_bytes()


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no compiler")
def test_a_real_library_with_a_newer_glibc_is_found(a100: Path, tmp_path: Path) -> None:
    (a100 / "usr/lib64/libcuda.so.1").write_bytes(library(tmp_path, "GLIBC_2.38"))
    known = hosts.facts_of(a100)
    found = gpus.check(hosts.situation(known, image="torch-cuda12"))
    assert "libcuda.so.1 (GLIBC_2.38)" in caused("glibc", found, "fail").cause
    caused("glibc", gpus.check(hosts.situation(known, image="torch-cuda12", cluster=CLUSTER)),
           "warn")
    (a100 / "usr/lib64/libcuda.so.1").write_bytes(library(tmp_path, "GLIBC_2.36"))
    found = gpus.check(hosts.situation(hosts.facts_of(a100), image="torch-cuda12"))
    assert finding("glibc", found).level == "ok"


def test_a_newer_library_for_graphics_only_is_a_warning(a100: Path) -> None:
    change(a100, "usr/lib64/libGLX.so.0", "GLIBC_2.39")
    found = gpus.check(hosts.situation(hosts.facts_of(a100), image="torch-cuda12"))
    assert "libGLX.so.0" in caused("glibc", found, "warn").cause


def test_the_peak_memory_of_a_recipe_is_compared_with_that_of_each_gpu(
    a100: Path, tmp_path: Path
) -> None:
    recipe = "futuregan/p100x1-convergence"  # 15.5 GB
    hosts.program(a100, "nvidia-smi", "echo 'Tesla P100-PCIE-12GB, 550.54.15, 6.0, 12288 MiB'")
    small = hosts.facts_of(a100)
    found = caused("gpu-memory", gpus.check(hosts.situation(small, recipe=recipe)), "fail")
    assert "12.9 GB of memory; the recipe expects 15.5 GB" in found.cause
    caused("gpu-memory",
           gpus.check(hosts.situation(small, recipe=recipe, cluster=CLUSTER)), "warn")
    hosts.program(a100, "nvidia-smi", "echo 'Tesla P100-SXM2-16GB, 550.54.15, 6.0, 16280 MiB'")
    found = gpus.check(hosts.situation(hosts.facts_of(a100), recipe=recipe))
    assert finding("gpu-memory", found).level == "ok"
    root = hosts.copy("amd-mi250x", tmp_path)
    for size, level in ((12 << 30, "fail"), (64 << 30, "ok")):
        change(root, "sys/class/drm/card1/device/mem_info_vram_total", f"{size}\n")
        about = hosts.situation(hosts.facts_of(root), recipe=recipe, image="torch-rocm")
        assert finding("gpu-memory", gpus.check(about)).level == level


def test_a_recipe_for_gpus_needs_them() -> None:
    known = hosts.facts_of("cpu-hardened", gpu="nvidia")
    recipe = "resnet-imagenet/v100x8-throughput"
    found = gpus.check(hosts.situation(known, recipe=recipe))
    assert "no NVIDIA GPU here, of 8" in caused("gpu-missing", found, "fail").cause
    assert not gpus.check(hosts.situation(known, recipe=recipe, cluster=CLUSTER))
    few = gpus.check(hosts.situation(hosts.facts_of("gpu-a100"), recipe=recipe))
    assert "4 NVIDIA GPU here, of 8" in caused("gpu-missing", few, "fail").cause


@pytest.mark.parametrize(("script", "level"), [
    (None, "warn"), ("exit 124", "warn"), ("echo 'No devices were found'; exit 6", "fail"),
])
def test_gpus_are_unknown_without_an_answer_of_nvidia_smi(
    a100: Path, script: str | None, level: str
) -> None:
    (a100 / "bin/nvidia-smi").unlink()
    if script is not None:
        hosts.program(a100, "nvidia-smi", script)
    recipe = "resnet-imagenet/v100x8-throughput"
    found = gpus.check(hosts.situation(hosts.facts_of(a100), recipe=recipe))
    caused("gpu-missing", found, level)


def test_the_machine_is_described_and_judged() -> None:
    found = machine.check(hosts.situation(hosts.facts_of("cpu-hardened", place_cache="/x/y")))
    caused("user", found, "warn")
    caused("cache-space", found, "warn")
    assert "4.0 GiB" in caused("memory", found, "warn").cause
    caused("cpu-flags", found, "warn")
    assert "Xeon" in finding("cores", found).cause


@pytest.mark.parametrize("folder", ["none", "none/deeper", "/none/deeper", "."])
def test_a_folder_for_temporary_files_that_is_not_there(a100: Path, folder: str) -> None:
    known = hosts.facts_of(a100, {"APPTAINER_TMPDIR": folder}, groups=("engine",))
    assert known.text("build-folder") == folder
    assert known.number("build-free")


def test_packages_of_the_user_are_told(tmp_path: Path) -> None:
    place = tmp_path / "home/.local/lib/python3.11/site-packages"
    (place / "package").mkdir(parents=True)
    known = hosts.facts_of("gpu-a100", {"HOME": str(tmp_path / "home")})
    assert str(place) in caused("user-site", machine.check(hosts.situation(known)), "warn").cause


@pytest.mark.parametrize(("here", "level"), [
    ([], "ok"), (["podman"], "warn"), (["buildah"], "warn"), (["podman", "buildah"], "ok"),
])
def test_podman_needs_two_programs(
    here: list[str], level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in here:
        hosts.program(tmp_path, name, ":")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if level == "warn":
        caused("engine-podman", machine.engines(), "warn")
    assert finding("engine-podman", machine.engines()).level == level


def test_missing_tcmalloc_is_told_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "PYTHON", "3.11")
    monkeypatch.setattr(host, "TCMALLOC", "no-such-library.so")
    found = caused("engine-host", machine.engines(), "warn")
    assert "tcmalloc" in found.cause
    assert "libtcmalloc-minimal4" in found.remedy


def test_nothing_on_path_ends_no_check(tmp_path: Path) -> None:
    place = tmp_path / "empty"
    place.mkdir()
    known = hosts.facts_of(place)
    assert engine.check(hosts.situation(known))
    assert machine.check(hosts.situation(known))
    assert list(place.iterdir()) == []  # the probe writes nothing
