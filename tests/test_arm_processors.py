"""Arm processors, which /proc/cpuinfo describes by numbers, in Python and in the shell."""

from __future__ import annotations

import json
import platform
import subprocess
from importlib import resources
from pathlib import Path

import pytest

import hosts
from trimaran import hostfacts

FUNCTIONS = resources.files("trimaran.run") / "functions.sh"

RECORDED = {
    "arm-graviton3": ("Arm Neoverse-V1", [
        "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "svebf16", "svei8mm",
    ]),
    "arm-grace": ("Arm Neoverse-V2", [
        "asimd", "asimddp", "asimdhp", "bf16", "i8mm", "sve", "svebf16", "svei8mm", "sve2",
    ]),
    "arm-altra": ("Arm Neoverse-N1", ["asimd", "asimddp", "asimdhp"]),
}
"""Machine of `tests/doctor/hosts` -> name and recorded instruction sets of its processor."""


@pytest.mark.parametrize("machine", RECORDED)
def test_a_recorded_processor_has_its_name_and_instruction_sets(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = hosts.HOSTS / machine / "proc/cpuinfo"
    monkeypatch.setattr(hostfacts, "Path", lambda path: file if "cpuinfo" in path else Path(path))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    found = hostfacts.host_facts.__wrapped__()
    assert (found.processor, found.cpu_flags) == RECORDED[machine]


@pytest.mark.parametrize("machine", RECORDED)
def test_the_script_of_a_bundle_finds_the_same(machine: str) -> None:
    file = hosts.HOSTS / machine / "proc/cpuinfo"
    text = FUNCTIONS.read_text(encoding="utf-8").replace("/proc/cpuinfo", str(file))
    said = _shell(f'{text}\nhost_facts\nprintf "%s\\n" "$processor" "$cpu_flags"\n').splitlines()
    name, flags = RECORDED[machine]
    assert said[0] == f'"{name}"'
    assert said[1].strip("[]").replace('"', "").replace(" ", "").split(",") == flags


@pytest.mark.parametrize("numbers", [*hostfacts.ARM_PROCESSORS, "0x41 0xfff", "0xc0 0xd4f"])
def test_the_shell_has_the_same_names(numbers: str) -> None:
    said = _shell(f"{FUNCTIONS.read_text(encoding='utf-8')}\narm_processor '{numbers}'\n")
    assert said == f"{hostfacts.arm_processor(numbers)}\n"


@pytest.mark.parametrize("machine", hostfacts.FLAGS)
def test_the_shell_records_the_same_instruction_sets(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The processor is made up: it has every instruction set, and others with similar names."""
    known, file = hostfacts.FLAGS[machine], tmp_path / "cpuinfo"
    similar = [f"{name}x" for name in known] + [f"x{name}" for name in known]
    key = "Features" if machine == "aarch64" else "flags"
    listed = " ".join([*similar, "fp", *reversed(known)])
    file.write_text(f"model name\t: A processor\n{key}\t: {listed}\n")
    monkeypatch.setattr(hostfacts, "Path", lambda path: file if "cpuinfo" in path else Path(path))
    monkeypatch.setattr(platform, "machine", lambda: machine)
    text = FUNCTIONS.read_text(encoding="utf-8").replace("/proc/cpuinfo", str(file))
    said = json.loads(_shell(f'{text}\nhost_facts\nprintf "%s\\n" "$cpu_flags"\n'))
    assert said == hostfacts.host_facts.__wrapped__().cpu_flags == list(known)


def test_an_unlisted_processor_is_named_by_its_numbers() -> None:
    assert hostfacts.arm_processor("0x41 0xfff") == "Arm processor 0x41 0xfff"


def _shell(source: str) -> str:
    return subprocess.run(
        ["/bin/sh", "-c", source], capture_output=True, text=True, check=True
    ).stdout
