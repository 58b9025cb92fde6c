"""Check a base image of AMD before anything is installed or compiled; standard library only.

Argument: `base` checks what the image needs, `horovod` what Horovod needs, and `failed LOG` tells
why Horovod's compilation failed. `base` is the first command of the build, run by any Python 3 of
the base image. The variable PYTHON is the path of the Python that has the framework, and that the
image extends (`python.base` in image.yaml).

All faults are reported at once, on standard error and in `report.json`, which `trimaran build`
reads. `report.json` is written into the folder of the host in which the build stage keeps compiled
objects. The supported versions are in rocm-versions.json.
"""

# ruff: noqa: T201 - the programs of the image, and messages for the user
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROCM = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
KEPT = Path(os.environ.get("KEPT", "/mnt/compiled"))
PYTHON = os.environ.get("PYTHON", sys.executable)
SECONDS = 30.0

BASE_UNSUPPORTED = 78
HOROVOD_IMPOSSIBLE = 79

HINTS = {
    "base": "use the base image that image.yaml names, or another tag of it with --base",
    "horovod": "build with HOROVOD=no (DDP only, no Horovod), or use another base image",
}

EXCERPT = re.compile(r"\s*\d*\s*\|")
"""A line of a log in which the compiler shows source text."""

PASSING = re.compile(
    r"(?i:no space left on device|quota exceeded|read-only file system|out of memory"
    r"|memory exhausted|cannot allocate memory|bad_alloc|resource temporarily unavailable"
    r"|input/output error|stale (?:nfs )?file handle|too many open files|text file busy"
    r"|connection timed out|transport endpoint)"
    r"|\bKilled\b|\bTerminated\b|\bHangup\b|terminated with signal"
    # make prints the name of a signal that has ended a command, or the status 128 + its number.
    r"|\*\*\* .*\] (?:Interrupt|Bus error|Error (?:129|1[345]\d)\b)"
)
"""Text in the log of a compilation that failed because of the machine, not of the base image.

Disk, memory or a quota was used up, a file system failed, or a process was ended from outside.
"""

DIAGNOSTIC = re.compile(
    r"\S.*:\d+(?::\d+)?: (?:fatal )?error: "  # FILE:LINE:COLUMN: error: of compilers
    r"|(?:\S*[/-])?(?:g?cc|[cg]\+\+|clang(?:\+\+)?|hipcc|(?:ld\.)?lld)(?:-\d+)?: (?:fatal )?error: "
    r"(?!linker command failed)"
    r"|CMake Error\b"
    r"|.*undefined reference to "
    r"|\S*\bld(?:\.\w+)?: cannot find "
)
"""The beginning of a line in which a compiler, a linker or CMake names a fault of the sources."""

DISTRIBUTIONS = {"torch": ("torch",), "tensorflow": ("tensorflow-rocm", "tensorflow")}
"""Framework -> names of its Python distribution in images of AMD."""


class UnsupportedError(Exception):
    """A part of the base image is missing, or its version cannot be read."""


class MachineError(Exception):
    """A compilation failed for a reason that is not known to be a fault of the base image."""


def of_program(path: str, pattern: str) -> str:
    """Return the version that `path --version` prints, found by `pattern`."""
    found = shutil.which(path)
    if found is None:
        raise UnsupportedError(f"{path} is missing")
    try:
        done = subprocess.run([found, "--version"], capture_output=True, timeout=SECONDS,
                              check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise UnsupportedError(f"{path} --version does not end within {SECONDS:g} s") from None
    except OSError as error:
        raise UnsupportedError(f"{path} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        raise UnsupportedError(f"{path} --version ends with status {done.returncode}")
    output = done.stdout.decode(errors="replace")
    if (match := re.search(pattern, output)) is None:
        first = (output.strip().splitlines() or [""])[0][:60]
        raise UnsupportedError(f"{path} --version prints no version: {first!a}")
    return match[1]


def rccl() -> str:
    """Return the version of RCCL in its header; the library must be there too."""
    header = ROCM / "include/rccl/rccl.h"
    try:
        text = header.read_text(errors="replace")
    except OSError as error:
        raise UnsupportedError(f"{header} cannot be read: {error.strerror}") from error
    if not (ROCM / "lib/librccl.so").is_file():
        raise UnsupportedError(f"{ROCM}/lib/librccl.so is missing")
    parts = [re.search(rf"#define NCCL_{part}\s+(\d+)", text) for part in ("MAJOR", "MINOR")]
    if None in parts:
        raise UnsupportedError(f"{header} has no version")
    return ".".join(part[1] for part in parts if part)


def cmake() -> str:
    """Return the version of CMake: of the wheel beside this script, if any, else of the program.

    The build of Horovod installs this wheel.
    """
    for wheel in HERE.glob("cmake-*.whl"):
        return wheel.name.split("-")[1]
    return of_program("cmake", r"cmake version (\d+(?:\.\d+)+)")


def of_python(program: str, *words: str) -> str:
    """Return the output of a short program for the Python that has the framework.

    That Python also needs pip and venv, which make the environment of the image.
    """
    program = f"import pip, sys, venv\nfrom importlib import metadata\n{program}"
    try:
        done = subprocess.run([PYTHON, "-c", program, *words], capture_output=True,
                              timeout=SECONDS, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise UnsupportedError(f"{PYTHON} does not end within {SECONDS:g} s") from None
    except OSError as error:
        raise UnsupportedError(f"{PYTHON} cannot be started: {error.strerror}") from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise UnsupportedError(f"{PYTHON}: {(lines or ['it fails without a message'])[-1][:200]!a}")
    return done.stdout.decode(errors="replace").strip()


FIRST_FOUND = """
for name in sys.argv[1:]:
    try:
        print(metadata.version(name))
        break
    except metadata.PackageNotFoundError:
        pass
"""
"""A program that prints the version of the first of its arguments that is installed."""


def framework(name: str) -> str:
    """Return the version of the framework `name`, which the base image brings."""
    version = of_python(FIRST_FOUND, *DISTRIBUTIONS[name])
    if not version:
        raise UnsupportedError(f"{name} is missing in {PYTHON}")
    return version


VERSIONS = {
    "hipcc": lambda: of_program(str(ROCM / "bin/hipcc"), r"HIP version: (\d+(?:\.\d+)+)"),
    "rccl": rccl,
    "mpirun": lambda: of_program("mpirun", r"\(Open MPI\) (\d+(?:\.\d+)+)"),
    "cmake": cmake,
    "python": lambda: of_python("print(*sys.version_info[:3], sep='.')"),
    "torch": lambda: framework("torch"),
    "tensorflow": lambda: framework("tensorflow"),
}
PROGRAMS = ("c++", "make", "patch")


def numbers(version: str) -> list[int]:
    """Return the first two numbers of a version: [2, 9] of `2.9.1+rocm7.2`."""
    match = re.match(r"(\d{1,6})(?:\.(\d{1,6}))?", version)
    if match is None:
        raise UnsupportedError(f"{version[:60]!a} is not a version")
    return [int(match[1]), int(match[2] or 0)]


def faults(stage: str) -> list[str]:
    """Return all faults of the base image for `stage`, one sentence each."""
    found = []
    for row in json.loads((HERE / "rocm-versions.json").read_text()):
        what = row["what"]
        if row["for"] != stage or (what in DISTRIBUTIONS and what != os.environ.get("FRAMEWORK")):
            continue
        try:
            version = VERSIONS[what]()
            if not numbers(row["from"]) <= numbers(version) < numbers(row["below"]):
                found.append(f"{what} is {version}; supported: from {row['from']}, below"
                             f" {row['below']} ({row['source']})")
        except UnsupportedError as fault:
            found.append(f"{what}: {fault}")
    if stage == "horovod":
        found += [f"{name} is missing" for name in PROGRAMS if shutil.which(name) is None]
    return found


def failure(log: Path) -> str:
    """Return why Horovod cannot be compiled, according to the log of the compilation.

    Raises:
        MachineError: The log shows that the machine failed, or has no error of a compiler or
            CMake. An image without Horovod must not result from a full disk.
    """
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()
             if line.strip() and not EXCERPT.match(line)]
    for line in lines:
        if PASSING.search(line):
            raise MachineError(f"the machine failed, not the base image: {line[:200]}")
    for at, line in enumerate(lines):
        if DIAGNOSTIC.match(line):
            # CMake tells the cause in the next lines.
            shown = " ".join(lines[at:at + 3]) if line.startswith("CMake") else line
            return f"Horovod cannot be compiled: {shown[:200]}"
    raise MachineError("the compilation failed without an error of a compiler or CMake:"
                       f" {(lines or ['no output'])[-1][:200]}")


def report(stage: str, found: list[str]) -> None:
    """Print the faults and a hint; write the faults to `report.json` in the folder `KEPT`.

    The build stage keeps compiled objects in `KEPT`. No file is written if this folder is missing
    or not writable.
    """
    for fault in found:
        print(f"{stage}: {fault}", file=sys.stderr)
    print(f"way out: {HINTS[stage]}", file=sys.stderr)
    if os.access(KEPT, os.W_OK):
        part = KEPT / "part-report"
        part.write_text(json.dumps({"stage": stage, "faults": found}))
        part.replace(KEPT / "report.json")


def main(arguments: list[str]) -> int:
    """Check the stage that the arguments name; return the exit status."""
    stage = arguments[0]
    if stage == "failed":
        try:
            stage, found = "horovod", [failure(Path(arguments[1]))]
        except MachineError as error:
            print(f"{error}\nway out: run the same command again to go on, or build with"
                  " HOROVOD=no", file=sys.stderr)
            return 1
    else:
        found = faults(stage)
    if not found:
        return 0
    report(stage, found)
    return BASE_UNSUPPORTED if stage == "base" else HOROVOD_IMPOSSIBLE


if __name__ == "__main__":
    os.environ["PATH"] = os.pathsep.join(["/opt/trimaran/bin", os.environ["PATH"]])
    sys.exit(main(sys.argv[1:]))
