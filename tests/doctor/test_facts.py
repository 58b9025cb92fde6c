"""The probe and its output: no content of a file or variable can forge a fact."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import hosts
from refusals import refused
from trimaran.doctor import facts
from trimaran.doctor.facts import Fact

HOSTILE = ("\n## node 0\n evil", "\r## node 0\r evil", "\x0c## node 0", "\u2028## node 0",
           "\x1b[31m", "## node 0", " ## node 0")

SHELLCHECK = str(Path(sys.executable).with_name("shellcheck"))


@pytest.mark.parametrize("text", HOSTILE)
def test_content_of_the_node_never_becomes_a_fact(tmp_path: Path, text: str) -> None:
    hosts.program(tmp_path, "mpirun", f"cat <<'END'\n{text}\nEND")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(f"model name\t: a{text}\nflags\t: avx{text}\n")
    known = hosts.facts_of(tmp_path, {"SLURM_NAME": text, "PMI_RANK": text})
    assert known.node == facts.parse(subprocess.run(
        ["/bin/sh", "-c", "printf '## node 0\\n %s\\n' \"$(uname -n)\""], capture_output=True,
        text=True, check=True).stdout).node
    assert "evil" not in known.node


@pytest.mark.parametrize(
    "value", ["/a b", "/a'b", "/$(touch owned)", "/a\nb", '/a"b', "/ü", "/`x`"]
)
def test_parameters_are_text_for_the_shell(tmp_path: Path, value: str) -> None:
    source = facts.probe_source({"place_runs": value}, groups=("ranks",))
    (tmp_path / "probe").write_text(f"{source}\nprintf '%s' \"$place_runs\" >out\n")
    subprocess.run(["/bin/sh", "probe"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "out").read_text() == value
    assert not (tmp_path / "owned").exists()


def test_status_text_and_numbers_are_parsed() -> None:
    known = facts.parse("noise\n## node 0\n n7\n## a.b 0\n 12\n## a.c 127\n## d 0\n x\n  y\n\n")
    assert known.node == "n7"
    assert known.number("a.b") == 12
    assert known.text("a.c") is None
    assert known.facts["a.c"] == Fact(127, "")
    assert known.under("a") == {"b": "12"}
    assert known.facts["d"].lines == ["x", " y"]
    assert known.number("d") is None
    assert facts.parse("").node == "unknown"
    assert facts.parse(f"## n 0\n {'9' * 5000}").number("n") is None


def test_shellcheck_finds_nothing_in_the_probe(tmp_path: Path) -> None:
    (tmp_path / "probe.sh").write_text(facts.probe_source({"gpu": "amd"}))
    done = subprocess.run([SHELLCHECK, "--shell=sh", "probe.sh"], cwd=tmp_path,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_program_that_ignores_the_end_of_its_time_is_killed(tmp_path: Path) -> None:
    hosts.program(tmp_path, "unshare", "trap '' TERM\nwhile :; do sleep 1; done")
    known = hosts.facts_of(tmp_path, groups=("engine",))
    assert known.facts["namespaces"] == Fact(124, "")
    assert known.text("fuse") is not None  # the probe went on


def test_a_program_that_hangs_costs_five_seconds_at_most(tmp_path: Path) -> None:
    hosts.program(tmp_path, "srun", "sleep 100")
    begun = time.monotonic()
    known = hosts.facts_of(tmp_path)
    assert time.monotonic() - begun < 60
    assert known.text("srun-mpi") == ""
    assert known.text("memory") is not None


def test_a_probe_that_hangs_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "SECONDS", 0.5)
    hosts.program(tmp_path, "srun", "sleep 100")
    with refused("program-timeout"):
        hosts.facts_of(tmp_path)
