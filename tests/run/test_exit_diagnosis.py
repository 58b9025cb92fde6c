from __future__ import annotations

import signal
from pathlib import Path

import pytest

from trimaran.run import app_process
from trimaran.run.app_process import OomKills

NONE = OomKills(None, None)


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (-9, "SIGKILL"),
        (137, "SIGKILL"),
        (-signal.SIGBUS, "SIGBUS"),
        (-signal.SIGSEGV, "SIGSEGV"),
        (128 + signal.SIGILL, "SIGILL"),
        (-signal.SIGUSR2, "SIGUSR2"),
    ],
)
def test_a_signal_has_a_name_and_a_reason(status: int, what: str) -> None:
    found = app_process.describe_kills(status, NONE, NONE)
    assert found is not None
    assert what in found[0]
    assert bool(found[1]) is (what != "SIGUSR2")


def test_who_ends_by_himself_has_no_signal() -> None:
    for status in (0, 1, 75, 127, 255):
        assert app_process.describe_kills(status, NONE, NONE) is None


def test_the_counter_of_the_control_group_comes_before_that_of_the_machine() -> None:
    found = app_process.describe_kills(-9, OomKills(1, 5), OomKills(3, 9))
    assert found is not None
    assert "killed 2 in this job" in found[0]
    assert "--mem" in found[1]
    assert "killed 4 in this machine" in str(OomKills(1, 9).since(OomKills(1, 5)))
    assert OomKills(None, 5).since(OomKills(2, 5)) is None


def test_the_counters_of_both_versions_of_control_groups_are_read(tmp_path: Path) -> None:
    own = tmp_path / "cgroup"
    (tmp_path / "job").mkdir()
    (tmp_path / "job/memory.events").write_text("low 0\noom 4\noom_kill 3\n")
    (tmp_path / "memory/old").mkdir(parents=True)
    (tmp_path / "memory/old/memory.oom_control").write_text("under_oom 0\noom_kill 7\n")
    own.write_text("0::/job\n")
    assert app_process._cgroup_kills(own, tmp_path) == 3
    own.write_text("3:cpu:/\n4:memory:/old\n0::/\n")
    assert app_process._cgroup_kills(own, tmp_path) == 7
    own.write_text("0::/elsewhere\n")
    assert app_process._cgroup_kills(own, tmp_path) is None
    assert app_process._cgroup_kills(tmp_path / "nothing", tmp_path) is None
