"""Tests of the console output: a bar on a terminal, plain lines elsewhere, closed outputs."""

import contextlib
import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import TextIO

import pytest

from trainkit import console
from trainkit.console import Console, Counter


@pytest.fixture
def terminal() -> Iterator[tuple[int, TextIO]]:
    """Yield a terminal of 80 columns: descriptor to read its output, and stream to write to it."""
    reader, writer = pty.openpty()
    resize(writer, 80)
    with open(writer, "w") as stream:  # noqa: PTH123 - a descriptor
        yield reader, stream
    os.close(reader)


def resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))


def shown(reader: int) -> str:
    """Return the text that the terminal has received since the last call."""
    os.set_blocking(reader, False)
    said = b""
    with contextlib.suppress(BlockingIOError):
        while True:
            said += os.read(reader, 10_000)
    return said.decode()


def speak(console: Console) -> None:
    console.step()
    console.progress("loss 1.0")
    console.line("epoch 1 top-1 90 %")
    console.close()


def test_off_a_terminal_there_are_plain_lines_only() -> None:
    stream = io.StringIO()
    speak(Console(10, stream=stream))
    assert stream.getvalue() == "loss 1.0\nepoch 1 top-1 90 %\n"


def test_a_terminal_gets_a_bar_that_counts_what_was_done_before(
    terminal: tuple[int, TextIO],
) -> None:
    reader, stream = terminal
    speak(Console(10, done=4, stream=stream))
    said = shown(reader)
    assert "5/10" in said
    assert "epoch 1 top-1 90 %" in said


def test_a_terminal_without_columns_gets_lines(terminal: tuple[int, TextIO]) -> None:
    """A terminal of 0 columns, as Open MPI gives to its ranks, gets plain lines and no bar."""
    reader, stream = terminal
    resize(stream.fileno(), 0)
    speak(Console(10, stream=stream))
    assert shown(reader) == "loss 1.0\r\nepoch 1 top-1 90 %\r\n"


def test_under_a_launcher_there_are_lines_on_any_terminal(
    terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, stream = terminal
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    speak(Console(10, stream=stream))
    assert shown(reader) == "loss 1.0\r\nepoch 1 top-1 90 %\r\n"


def test_other_ranks_are_silent() -> None:
    stream = io.StringIO()
    speak(Console(10, quiet=True, stream=stream))
    with Counter("evaluating", 3, "batches", quiet=True, stream=stream) as done:
        done.add()
    assert stream.getvalue() == ""


def test_a_count_is_told_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(console.time, "monotonic", lambda: now)
    stream = io.StringIO()
    with Counter("evaluating", 30, "batches", stream=stream) as done:
        for now in (2.0, 4.0, 6.0, 8.0, 10.0, 12.0):  # noqa: B007 - the clock
            done.add(2)
    assert stream.getvalue() == (
        "evaluating: 6 of 30 batches, 1/s\nevaluating: 12 of 30 batches, 1/s\n"
    )


def test_a_count_on_a_terminal_is_a_bar_that_goes_away(terminal: tuple[int, TextIO]) -> None:
    reader, stream = terminal
    with Counter("evaluating", 2, "batches", stream=stream) as done:
        done.add()
    said = shown(reader)
    assert "evaluating:   0%" in said
    assert said.rstrip(" ").endswith("\r")


@pytest.mark.parametrize("width", [0, 80])
def test_a_terminal_that_was_hung_up_is_no_error(width: int) -> None:
    reader, writer = pty.openpty()
    resize(writer, width)
    with open(writer, "w") as stream:  # noqa: PTH123 - a descriptor
        shown = Console(10, stream=stream)
        os.close(reader)
        speak(shown)
        speak(shown)


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = (
        "import sys; from trainkit import exits; from trainkit.console import Console\n"
        "def main():\n"
        "    sys.stdin.read()\n"
        "    Console(2).line('to nobody')\n"
        "sys.exit(exits.run('app', main))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.close()
    child.stdin.close()
    assert child.wait(60) == 0
