"""Check a base image of AMD before anything is compiled; standard library only.

Argument: `base` checks what the image needs, `horovod` what Horovod needs, and `failed LOG` tells
why Horovod's compilation failed. All faults are reported at once, on standard error and in
`report.json`, which `trimaran build` reads. `report.json` is written into the folder of the host in
which the build stage keeps compiled objects. The supported versions are in rocm-versions.json.
"""

# ruff: noqa: T201 - the programs of the image, and messages for the user
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
ROCM = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
KEPT = Path(os.environ.get("KEPT", "/mnt/compiled"))
SECONDS = 30.0

BASE_UNSUPPORTED = 78
HOROVOD_IMPOSSIBLE = 79

HINTS = {
    "base": "use the base image that image.yaml names, or another tag of it with --base",
    "horovod": "build with HOROVOD=no (DDP only, no Horovod), or use another base image",
}

PASSING = ("Killed", "No space left on device", "Cannot allocate memory", "out of memory")
"""Messages in the log of a compilation for which memory or disk space was insufficient.

Such a failure is not a fault of the base image.
"""

DISTRIBUTIONS = {"torch": ("torch",), "tensorflow": ("tensorflow-rocm", "tensorflow")}
"""Framework -> names of its Python distribution in images of AMD."""


class UnsupportedError(Exception):
    """A part of the base image is missing, or its version cannot be read."""


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


def framework(name: str) -> str:
    """Return the version of the framework `name`, which the base image brings."""
    for distribution in DISTRIBUTIONS[name]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    raise UnsupportedError(f"{name} is missing")


VERSIONS = {
    "hipcc": lambda: of_program(str(ROCM / "bin/hipcc"), r"HIP version: (\d+(?:\.\d+)+)"),
    "rccl": rccl,
    "mpirun": lambda: of_program("mpirun", r"\(Open MPI\) (\d+(?:\.\d+)+)"),
    "cmake": cmake,
    "python": lambda: ".".join(map(str, sys.version_info[:3])),
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


def failure(log: Path) -> str | None:
    """Return why the compilation failed, according to its log.

    The result is None if the compilation failed because memory or disk space was insufficient.
    """
    lines = log.read_text(errors="replace").splitlines()
    if any(text in line for line in lines for text in PASSING):
        return None
    errors = [line.strip() for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    return f"Horovod cannot be compiled: {(errors or lines or ['no output'])[0][:200]}"


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
        reason = failure(Path(arguments[1]))
        if reason is None:
            print("the machine is too small; run the same command again to go on", file=sys.stderr)
            return 1
        stage, found = "horovod", [reason]
    else:
        found = faults(stage)
    if not found:
        return 0
    report(stage, found)
    return BASE_UNSUPPORTED if stage == "base" else HOROVOD_IMPOSSIBLE


if __name__ == "__main__":
    os.environ["PATH"] = os.pathsep.join(["/opt/trimaran/bin", os.environ["PATH"]])
    sys.exit(main(sys.argv[1:]))
