"""Locks of the cache: which process waits, and what remains after the holder has ended."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from refusals import refused
from trimaran import locks, paths
from trimaran.reporting import Silent

# Shares the lock of its argument, and starts a child that holds it, too.
TOOL = """
import subprocess, sys
from pathlib import Path
from trimaran import locks
from trimaran.reporting import Silent
with locks.using(Path(sys.argv[1]), Silent()) as held:
    app = subprocess.Popen(["sleep", "60"], pass_fds=held)
    print(app.pid, flush=True)
    app.wait()
"""


def started(pid: int) -> int:
    """Wait until a process has a command line, which is empty for a moment after its start."""
    while not Path(f"/proc/{pid}/cmdline").read_bytes():
        pass
    return pid


@pytest.fixture
def place() -> Path:
    place = paths.cache("host", "torch-cpu-000000000000")
    (place / "bin").mkdir(parents=True)
    return place


def test_many_use_a_thing_and_nobody_removes_it_meanwhile(place: Path) -> None:
    told = Silent()
    with locks.using(place, told), locks.using(place, told):
        assert locks.user_of(place) is not None
        with refused("in-use", kind=locks.InUseError), locks.removing(place):
            pass
    assert locks.user_of(place) is None
    with locks.removing(place):
        pass
    assert told.notes == []


def test_who_waits_says_for_whom(place: Path) -> None:
    told, made = Silent(), threading.Event()

    def wait() -> None:
        with locks.making(place, told):
            made.set()

    with locks.making(place, Silent()):
        second = threading.Thread(target=wait)
        second.start()
        while not told.notes:
            assert second.is_alive()
        assert not made.is_set()
    second.join()
    assert made.is_set()
    assert f"{place.name}: waiting for process " in told.notes[0]


def test_an_app_that_outlives_the_tool_keeps_its_image(place: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TOOL, str(place)], stdout=subprocess.PIPE, text=True
    ) as tool:
        assert tool.stdout is not None
        app = started(int(tool.stdout.readline()))
        tool.kill()
    assert f"process {app} (sleep 60)" == locks.user_of(place)
    subprocess.run(["kill", str(app)], check=True)
    while locks.user_of(place):
        pass


def test_what_was_started_from_a_place_without_its_lock_is_found(place: Path) -> None:
    (place / "bin/sleep").symlink_to("/bin/sleep")
    with subprocess.Popen([place / "bin/sleep", "60"]) as app:
        started(app.pid)
        assert str(locks.user_of(place)).startswith(f"process {app.pid} (")
        app.kill()
    assert locks.user_of(place) is None
    file = place / "open"
    file.touch()
    with file.open() as opened, subprocess.Popen(["sleep", "60"], stdin=opened) as app:
        started(app.pid)
        assert str(locks.user_of(place)).startswith(f"process {app.pid} (")
        app.kill()
    assert locks.user_of(place.with_name("torch-cpu-0")) is None


def test_a_cache_that_may_not_be_written_needs_no_locks(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths.cache("locks").write_text("no folder")
    with locks.using(place, Silent()) as held:
        assert held == []
    with locks.scratch(place.parent, "part-") as part:
        assert part.is_dir()
        assert not locks.left_over(part)
