from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refused
from trimaran import process
from trimaran.errors import BuildError, Interrupted
from trimaran.reporting import Silent

FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def test_run_captures_output_and_checks_the_status() -> None:
    result = process.run([sys.executable, "-c", "print('out'); raise SystemExit(3)"])
    assert (result.returncode, result.stdout) == (3, "out\n")
    with refused("program-failed", sys.executable, "status 3", kind=BuildError):
        process.run([sys.executable, "-c", "raise SystemExit(3)"], check=BuildError)


def test_a_missing_program_is_a_clear_error() -> None:
    with refused("program-missing", "no-such-program"):
        process.run(["no-such-program"])
    with refused("program-missing", "no-such-program"):
        process.stream(["no-such-program"], None, Silent())


def test_stream_hands_on_each_line_and_keeps_a_log(tmp_path: Path) -> None:
    lines: list[str] = []
    told = Silent()
    code = "print('a'); print('b'); raise SystemExit(4)"
    status = process.stream(
        [sys.executable, "-c", code], "saying a", told, log=tmp_path / "log", on_line=lines.append
    )
    assert told.bars == ["saying a"]
    assert (status, lines, (tmp_path / "log").read_text()) == (4, ["a", "b"], "a\nb\n")


@pytest.mark.parametrize("status", [0, 3])
def test_the_whole_output_remains_only_after_a_failure(status: int, tmp_path: Path) -> None:
    code = f"[print(n) for n in range(100)]; raise SystemExit({status})"
    log = tmp_path / "logs/log"
    log.parent.mkdir()
    log.write_text("an earlier failure")
    with refused("program-failed", "status 3", kind=BuildError) if status else nullcontext():
        process.follow([sys.executable, "-c", code], "counting", Silent(), what="counting",
                       check=BuildError, log=log)
    assert log.exists() is bool(status)
    if status:
        assert log.read_text().splitlines() == [str(number) for number in range(100)]


def is_alive(pid: int) -> bool:
    """Return False as soon as a process has ended or is a zombie; True if it runs for a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            return False
        time.sleep(0.02)
    return True


def later(*signals: signal.Signals) -> None:
    """Send the signals to this process, one every 0.2 s."""
    for number, one in enumerate(signals, 1):
        threading.Timer(0.2 * number, os.kill, (os.getpid(), one)).start()


@pytest.mark.parametrize("signum", process.STOPS)
def test_a_stop_ends_the_child_and_its_children(signum: signal.Signals) -> None:
    children: list[int] = []

    def on_line(line: str) -> None:
        children.append(int(line))
        later(signum)

    with pytest.raises(Interrupted):
        process.stream([sys.executable, "-c", FAMILY], None, Silent(), on_line=on_line)
    assert not is_alive(children[0])


def test_a_signal_that_is_ignored_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program under nohup ignores SIGHUP in this way."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = "import os, signal; os.kill(os.getppid(), signal.SIGHUP); print('still here')"
        lines: list[str] = []
        argv = [sys.executable, "-c", code]
        assert process.stream(argv, None, Silent(), on_line=lines.append) == 0
        assert lines == ["still here"]
    finally:
        signal.signal(signal.SIGHUP, before)


STUBBORN = """
import os, signal, subprocess, sys, time
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda n, f: print("got", signal.Signals(n).name, flush=True))
rank = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True
)
print(rank.pid, flush=True)
while True:
    time.sleep(60)
"""


def test_the_third_stop_kills_the_child_and_even_ranks_in_sessions_of_their_own() -> None:
    lines: list[str] = []
    told = Silent()

    def on_line(line: str) -> None:
        lines.append(line)
        if line.isdigit() or line.startswith("got"):
            later(signal.SIGINT)

    with pytest.raises(Interrupted):
        process.stream([sys.executable, "-c", STUBBORN], None, told, on_line=on_line)
    assert lines[1:] == ["got SIGTERM", "got SIGINT"], "what it says while it stops is shown"
    assert [text.split()[0] for text in told.notes] == ["stopping:", "interrupting", "killed"]
    assert not is_alive(int(lines[0]))


def test_a_child_that_exceeds_its_time_limit_is_stopped() -> None:
    lines: list[str] = []
    began = time.monotonic()
    with refused("program-timeout", "within 0.5 s"):
        process.stream([sys.executable, "-c", FAMILY], None, Silent(), on_line=lines.append,
                       seconds=0.5)
    assert time.monotonic() - began < 50
    assert not any(is_alive(int(line)) for line in lines)
    assert process.stream(["true"], None, Silent(), seconds=60) == 0


def test_a_child_that_ignores_the_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('up', flush=True); time.sleep(60)"
    )
    begin = time.monotonic()
    with pytest.raises(Interrupted):
        process.stream(
            [sys.executable, "-c", code], None, Silent(),
            on_line=lambda line: later(signal.SIGINT),
        )
    assert time.monotonic() - begin < 50


def test_a_log_that_cannot_be_written_ends_the_child_and_is_named(
    monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "open_plain", os.open)  # the full disk here is not a plain file
    code = "import time; print('a', flush=True); time.sleep(60)"
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        process.stream([sys.executable, "-c", code], None, Silent(), log=Path("/dev/full"))


HOSTILE = [
    "", "a b", "it's", '"', "-n", "--", "$(touch x)", "`touch x`", "a\nb", "a\n", "\x1b[31mred",
    "tab\there", "\r", "\x07\x7f", "\u202egpj.exe", "\u2028", "\udcff\udcfe", "%s%n", "\\033", "!!",
    "\x1b\n", "größe", "~", "*", "a;b", "#", "=",
]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_line_to_paste_gives_the_same_words_and_shows_them_plainly(shell: str) -> None:
    script = "import os, sys; print([os.fsencode(word) for word in sys.argv[1:]])"
    argv = [sys.executable, "-c", script, *HOSTILE]
    line = process.shell_line(argv)
    assert all(char.isprintable() or char == "\n" for char in line)
    said = process.run([shell], stdin=line).stdout
    assert said == f"{[os.fsencode(word) for word in HOSTILE]}\n"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
@settings(max_examples=25, deadline=None)
def test_any_word_survives_being_pasted(word: str) -> None:
    said = process.run(["sh"], stdin=f"printf '[%s]' {process.quoted(word)}").stdout
    assert said.replace("\r\n", "\n") == f"[{word}]".replace("\r\n", "\n").replace("\r", "\n")


def test_a_stop_that_comes_while_the_child_starts_is_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Started(subprocess.Popen[str]):
        def __init__(self, *words: Any, **options: Any) -> None:
            super().__init__(*words, **options)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess, "Popen", Started)
    began = time.monotonic()
    with pytest.raises(Interrupted):
        process.stream(["sleep", "60"], None, Silent())
    assert time.monotonic() - began < 30


def test_a_stop_that_another_thread_takes_is_not_lost() -> None:
    """SIGTERM interrupts `stream`, even if another thread receives the signal.

    The thread may import Matplotlib, for example, while the main thread waits for the child.
    """
    end = threading.Event()
    other = threading.Thread(target=end.wait)
    other.start()
    code = (
        "import os, signal, time; signal.pthread_sigmask(signal.SIG_SETMASK, []); "
        "os.kill(os.getppid(), signal.SIGTERM); time.sleep(20); print('never told')"
    )
    lines: list[str] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        with pytest.raises(Interrupted):
            process.stream([sys.executable, "-c", code], None, Silent(), on_line=lines.append)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        end.set()
        other.join()
    assert lines == []
