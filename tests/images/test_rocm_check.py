"""Test the check of AMD's base images with stand-ins for hipcc, RCCL, mpirun, cmake and torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trimaran import paths

BASE, HOROVOD, MACHINE = 78, 79, 1
HIPCC = "HIP version: 7.2.53211-158197f4\nAMD clang version 20.0.0\n"
RCCL = "#define NCCL_MAJOR 2\n#define NCCL_MINOR 27\n#define NCCL_PATCH 7\n"


class Place:
    """A stand-in base image: /opt/rocm, programs on PATH, and the files of the build stage."""

    def __init__(self, folder: Path) -> None:
        self.rocm, self.programs, self.kept = folder / "rocm", folder / "bin", folder / "kept"
        self.build, self.packages = folder / "build", folder / "site"
        for made in (self.rocm / "include/rccl", self.rocm / "lib", self.rocm / "bin",
                     self.programs, self.kept, self.build, self.packages):
            made.mkdir(parents=True)
        for name in ("rocm_check.py", "rocm-versions.json"):
            shutil.copy(paths.repository() / "containers/build" / name, self.build)
        self.program(self.rocm / "bin/hipcc", HIPCC)
        self.program(self.programs / "mpirun", "mpirun (Open MPI) 4.1.8\n")
        self.program(self.programs / "cmake", "cmake version 3.31.10\n")
        for name in ("c++", "make", "patch"):
            self.program(self.programs / name, "")
        (self.rocm / "include/rccl/rccl.h").write_text(RCCL)
        (self.rocm / "lib/librccl.so").touch()
        self.torch("2.9.1+rocm7.2.4.gitd5a1b3c2")
        # The version of Python in the table is that of the images, not of these tests.
        table = json.loads((self.build / "rocm-versions.json").read_text())
        kept = [row for row in table if row["what"] != "python"]
        (self.build / "rocm-versions.json").write_text(json.dumps(kept))

    def program(self, path: Path, output: str, status: int = 0) -> None:
        """Write a stand-in program that prints `output`."""
        path.write_text(f"#!/bin/sh\nprintf '%b' {output!r}\nexit {status}\n")
        path.chmod(0o755)

    def torch(self, version: str) -> None:
        """Write the metadata of a stand-in for torch."""
        folder = self.packages / "torch-1.dist-info"
        folder.mkdir(exist_ok=True)
        text = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
        (folder / "METADATA").write_text(text)

    def check(self, *words: str, python: str = sys.executable) -> tuple[int, list[str]]:
        """Return the exit status, and the faults in the report."""
        env = {"PYTHON": python, "PATH": f"{self.programs}{os.pathsep}/nowhere",
               "ROCM_PATH": str(self.rocm), "KEPT": str(self.kept), "FRAMEWORK": "torch",
               "PYTHONPATH": str(self.packages)}
        done = subprocess.run([sys.executable, str(self.build / "rocm_check.py"), *words], env=env,
                              capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr
        report = self.kept / "report.json"
        faults = json.loads(report.read_text())["faults"] if report.exists() else []
        assert all(fault in done.stderr for fault in faults)
        return done.returncode, faults

    def failed(self, text: str) -> tuple[int, list[str]]:
        """Return exit status and faults for a compilation whose log is `text`."""
        log = self.kept / "log"
        log.write_text(text)
        return self.check("failed", str(log))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_the_expected_base_image_passes(place: Place) -> None:
    assert place.check("base") == (0, [])
    assert place.check("horovod") == (0, [])


def test_all_faults_are_reported_at_once(place: Place) -> None:
    (place.rocm / "bin/hipcc").unlink()
    (place.rocm / "lib/librccl.so").unlink()
    place.torch("1.0")
    (place.programs / "mpirun").unlink()
    (place.programs / "make").unlink()
    for stage, expected, names in (("base", BASE, ("hipcc", "rccl", "torch")),
                                   ("horovod", HOROVOD, ("mpirun", "make"))):
        status, faults = place.check(stage)
        assert status == expected
        assert len(faults) == len(names)
        for name, fault in zip(names, faults, strict=True):
            assert fault.startswith(name)


@pytest.mark.parametrize("output", [
    "", "HIP version: \n", "HIP version: seven\n", "\\000\\377\\376", "version\n" * 50,
    "HIP version: 99999999999.1\n",
])
def test_an_absurd_version_is_a_fault(place: Place, output: str) -> None:
    place.program(place.rocm / "bin/hipcc", output)
    status, faults = place.check("base")
    assert (status, len(faults)) == (BASE, 1)
    assert faults[0].isascii()
    assert len(faults[0]) < 300


@pytest.mark.parametrize(("version", "accepted"), [
    ("5.7.1", False), ("6.0", True), ("6.4.2", True), ("7.99", True), ("8.0", False),
])
def test_the_patch_supports_rocm_6_and_7(place: Place, version: str, accepted: bool) -> None:
    place.program(place.rocm / "bin/hipcc", f"HIP version: {version}\n")
    assert place.check("base")[0] == (0 if accepted else BASE)


@pytest.mark.parametrize("version", ["2.8.0", "2.10", "not-a-version"])
def test_another_version_of_the_framework_is_refused(place: Place, version: str) -> None:
    place.torch(version)
    status, faults = place.check("base")
    assert (status, len(faults)) == (BASE, 1)


def test_a_program_that_fails_or_cannot_start_is_a_fault(place: Place) -> None:
    place.program(place.rocm / "bin/hipcc", HIPCC, status=3)
    (place.programs / "mpirun").write_bytes(b"\x7fELF no program")
    for stage, expected in (("base", BASE), ("horovod", HOROVOD)):
        status, faults = place.check(stage)
        assert (status, len(faults)) == (expected, 1)


def test_a_header_without_version_is_a_fault(place: Place) -> None:
    (place.rocm / "include/rccl/rccl.h").write_text("#define NCCL_MAJOR two\n")
    assert place.check("base")[0] == BASE


def test_the_version_of_the_wheel_of_cmake_counts(place: Place) -> None:
    (place.build / "cmake-4.0.3-py3-none-any.whl").touch()
    assert place.check("horovod")[0] == HOROVOD


def test_the_python_that_the_image_extends_may_be_missing(place: Place) -> None:
    status, faults = place.check("base", python="/opt/nowhere/bin/python")
    assert status == BASE
    assert all("/opt/nowhere/bin/python" in fault for fault in faults)


def test_the_python_that_the_image_extends_needs_pip(place: Place) -> None:
    (place.packages / "pip.py").write_text("raise ModuleNotFoundError('No module named pip')\n")
    status, faults = place.check("base")
    assert status == BASE
    assert "pip" in faults[0]


def test_the_version_of_that_python_counts_and_not_of_the_one_that_checks(place: Place) -> None:
    place.program(place.programs / "other", "3.11.9")
    whole = paths.repository() / "containers/build/rocm-versions.json"
    shutil.copy(whole, place.build)
    status, faults = place.check("base", python=str(place.programs / "other"))
    assert status == BASE
    assert any(fault.startswith("python is 3.11.9") for fault in faults)


@pytest.mark.parametrize("text", [
    "  nccl.h:3: error: no such type\n",
    "/opt/x/nccl.cc:3:14: error: no such type\n    3 | \"Out of memory\"\n",
    "/opt/x/nccl.cc:3:14: fatal error: nccl.h: no such type\n",
    "CMake Error at CMakeLists.txt:9 (find_package):\n\n  no such type\n",
    "/usr/bin/ld: a.o: in function `f':\na.cc:(.text+0x3): undefined reference to `no such type'\n",
    "/usr/bin/ld: cannot find -lno such type\n", "ld.lld: error: undefined symbol: no such type\n",
    "clang++: error: no such type\n", "x86_64-linux-gnu-g++-13: error: no such type\n",
    "/usr/bin/c++: error: no such type\n",
])
def test_a_failed_compilation_tells_its_first_error(place: Place, text: str) -> None:
    status, faults = place.failed(
        f"compiling, not null-terminated\n{text}make: *** [all] Error 2\n")
    assert status == HOROVOD
    assert "no such type" in faults[0]


@pytest.mark.parametrize("line", [
    "c++: fatal error: Killed signal terminated program cc1plus",
    "error: No space left on device", "virtual memory exhausted: Cannot allocate memory",
    "virtual memory exhausted: Out of memory", "cc1plus: out of memory allocating 65536 bytes",
    "x.cc:3:1: fatal error: error writing to /tmp/c.s: Disk quota exceeded",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "c++: fatal error: cannot execute 'as': vfork: Resource temporarily unavailable",
    "x.cc:1:10: fatal error: nccl.h: Input/output error", "nccl.h: Stale file handle",
    "make: *** [x.o] Terminated", "make: *** [all] Interrupt", "make[2]: *** [x.o] Error 137",
    "collect2: fatal error: ld terminated with signal 9", "c.s: Read-only file system",
])
def test_a_machine_that_fails_does_not_cost_horovod(place: Place, line: str) -> None:
    log = f"y.cc:1:2: error: no such type\n{line}\nmake: *** [all] Error 1\n"
    assert place.failed(log) == (MACHINE, [])


@pytest.mark.parametrize("text", [
    "", "make: *** [all] Error 1\n", "error: command 'cmake' failed with exit code 1\n",
    "collect2: error: ld returned 1 exit status\n", "x.cc:1:2: warning: an error: is possible\n",
    "clang++: error: linker command failed with exit code 1\n",
])
def test_without_an_error_of_a_compiler_it_is_not_the_base_image(place: Place, text: str) -> None:
    assert place.failed(text) == (MACHINE, [])


def test_every_row_of_the_table_has_a_source() -> None:
    table = json.loads((paths.repository() / "containers/build/rocm-versions.json").read_text())
    assert all(row["source"] and row["for"] in ("base", "horovod") for row in table)
