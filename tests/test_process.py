from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from trimaran import process
from trimaran.errors import BuildError, Interrupted, UsageError

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_run_captures_output_and_checks_the_status() -> None:
    result = process.run([sys.executable, "-c", "print('out'); raise SystemExit(3)"])
    assert (result.returncode, result.stdout) == (3, "out\n")
    with pytest.raises(BuildError, match="failed with status 3"):
        process.run([sys.executable, "-c", "raise SystemExit(3)"], check=BuildError)


def test_a_missing_program_is_a_clear_error() -> None:
    for start in (process.run, process.stream):
        with pytest.raises(UsageError, match="program not found: no-such-program"):
            start(["no-such-program"])


def test_stream_hands_on_each_line_and_keeps_a_log(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "print('a'); print('b'); raise SystemExit(4)"
    status = process.stream(
        [sys.executable, "-c", code], log=tmp_path / "log", on_line=lines.append
    )
    assert (status, lines, (tmp_path / "log").read_text()) == (4, ["a", "b"], "a\nb\n")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_the_child_and_its_children(signum: signal.Signals) -> None:
    children: list[int] = []

    def on_line(line: str) -> None:
        children.append(int(line))
        threading.Timer(0.2, os.kill, (os.getpid(), signum)).start()

    with pytest.raises(Interrupted):
        process.stream([sys.executable, "-c", FAMILY], on_line=on_line)
    deadline = time.monotonic() + 5
    while psutil.pid_exists(children[0]) and time.monotonic() < deadline:
        if psutil.Process(children[0]).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.05)
    assert (
        not psutil.pid_exists(children[0])
        or psutil.Process(children[0]).status() == psutil.STATUS_ZOMBIE
    )


def test_a_child_that_ignores_the_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('up', flush=True); time.sleep(60)"
    )

    def on_line(line: str) -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    begin = time.monotonic()
    with pytest.raises(Interrupted):
        process.stream([sys.executable, "-c", code], on_line=on_line)
    assert time.monotonic() - begin < 10
