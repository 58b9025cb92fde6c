"""Start processes, always with an argument list and never with a shell.

No other module of Trimaran starts processes.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from trimaran import paths
from trimaran.errors import Interrupted, RunError, TrimaranError, UsageError, code_of, way_out
from trimaran.files import named, open_plain
from trimaran.reporting import Reporter

GRACE_SECONDS = 30.0
"""Seconds in which a stopped child process can write its checkpoint before it is killed."""

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command: they come from Ctrl-C, the batch system or a closed terminal."""

_STEPS = (
    (signal.SIGTERM, "stopping: the program has {grace:.0f} s to end;"
                     " stop it again to interrupt it"),
    (signal.SIGINT, "interrupting the program; stop it once more to kill it"),
    (signal.SIGKILL, "killed"),
)
"""(signal for the child process, note for the user) at the first, second and third stop signal."""

_END = b"\0"  # no signal has this number

Result = subprocess.CompletedProcess[str]
"""Exit status and captured output of a finished process."""


def shell_line(argv: Sequence[str]) -> str:
    """Return `argv` as one line that can be pasted into a POSIX shell."""
    return " ".join(quoted(word) for word in argv)


def quoted(word: str) -> str:
    """Return `word` quoted for a POSIX shell, with printable characters only.

    A terminal, or a shell into which the text is pasted, would execute control characters.
    Therefore printf generates them (not every sh supports `$'...'`). Line breaks remain: they are
    harmless in quotes, and `$(...)` would remove them.
    """
    if not word or all(char.isprintable() or char == "\n" for char in word):
        return shlex.quote(word)
    runs = groupby(word, lambda char: char.isprintable() or char == "\n")
    parts = ((shown, "".join(chars)) for shown, chars in runs)
    return "".join(
        shlex.quote(part) if shown else f'"$(printf \'{_octal(part)}\')"' for shown, part in parts
    )


def _octal(text: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(text))


def in_utf8() -> None:
    """Restart the program in Python's UTF-8 mode if the locale has another encoding.

    Names of files and classes are UTF-8; if decoded as Latin-1, they would be stored incorrectly.
    The program is restarted in the same process.
    """
    if sys.getfilesystemencoding().lower() != "utf-8":
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execv(sys.executable, words)  # noqa: S606 - the same program, without a shell


def run(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None,
    timeout: float | None = None, stdin: str | None = None,
    check: type[TrimaranError] | None = None,
) -> Result:
    """Run `argv` to its end and capture its output.

    Args:
        argv: program and arguments, which no shell interprets.
        env: the complete environment of the child process (None: inherited).
        cwd: working directory.
        stdin: text for the standard input (None: empty). Secrets must be passed here, so that
            they never appear in the list of processes or in an error.
        timeout: seconds after which the child process is killed.
        check: class of the error that is raised if the program fails or takes too long. None: the
            result is returned with any exit status, and a timeout raises TimeoutExpired.

    Raises:
        UsageError: the program is not installed.
        TrimaranError: The program failed or took too long; the error has the class `check`.
        TimeoutExpired: the time limit was exceeded, and `check` is None.
    """
    try:
        done = subprocess.run(
            list(argv), env=env, cwd=cwd, timeout=timeout, capture_output=True,
            encoding="utf-8", errors="replace", check=False, input=stdin or "",
        )
    except FileNotFoundError as error:
        raise _not_found(argv) from error
    except subprocess.TimeoutExpired as error:
        if check is None:
            raise
        raise check(f"`{shell_line(argv)}` did not end within {timeout:g} s",
                    code="program-timeout") from error
    if check is not None and done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise check(f"`{shell_line(argv)}` failed with status {done.returncode}:\n{tail}",
                    code="program-failed")
    return done


def git(folder: Path, *words: str) -> str | None:
    """Return the output of a git command in the checkout that contains `folder`.

    Return None if git is not installed, `folder` is in no checkout, or the command fails.
    """
    if shutil.which("git") is None or paths.is_installed(folder):
        return None
    result = run(["git", "-C", str(folder), *words])
    return result.stdout.strip() if result.returncode == 0 else None


def ask(
    argv: Sequence[str], seconds: float, *, env: Mapping[str, str] | None = None,
    cwd: Path | None = None, stdin: str = "", keep_open: Sequence[int] = (),
) -> Result:
    """Run a program that must end within `seconds`, and capture its output.

    The program leads its own process group: Ctrl-C on the terminal stops only Trimaran, and the
    child processes of the program end together with the program.

    The other arguments are documented at `run`.

    Args:
        seconds: time limit.
        keep_open: descriptors that the program inherits, such as the descriptor of a lock.

    Raises:
        UsageError: the program is not installed.
        RunError: the program cannot be started, or exceeds the time limit.
    """
    try:
        child = subprocess.Popen(
            list(argv), env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, encoding="utf-8", errors="replace", start_new_session=True,
            pass_fds=list(keep_open),
        )
    except FileNotFoundError as error:
        raise _not_found(argv) from error
    except OSError as error:
        raise RunError(f"{argv[0]} cannot be started: {error.strerror or error}",
                       code=code_of(error, "program-failed"), hint=way_out(error)) from error
    with child:
        try:
            output, errors = child.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{argv[0]} has not answered within {seconds:g} s",
                           code="program-timeout") from error
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
    return Result(child.args, child.returncode, output, errors)


@contextmanager
def put_off() -> Iterator[None]:
    """Delay the effect of the first signal in `STOPS` until the `with` block ends.

    A second signal interrupts the block at once.

    Raises:
        KeyboardInterrupt: a signal arrived, and the block did not fail.
    """
    stops: list[int] = []

    def note(signum: int, frame: object) -> None:
        stops.append(signum)
        if len(stops) > 1:
            raise KeyboardInterrupt

    with handling(note):
        yield
    if stops:
        raise KeyboardInterrupt


@contextmanager
def handling(handler: Any) -> Iterator[None]:
    """Install `handler` within the `with` block for the signals of `STOPS` that are not ignored.

    The command nohup, for example, ignores SIGHUP.
    """
    previous = {
        number: signal.signal(number, handler)
        for number in STOPS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, one in previous.items():
            signal.signal(number, one)


def interrupt(signum: int, frame: object) -> None:
    """Raise KeyboardInterrupt, as Python does at Ctrl-C."""
    raise KeyboardInterrupt


def stream(
    argv: Sequence[str], title: str | None, reporter: Reporter, *,
    env: Mapping[str, str] | None = None, cwd: Path | None = None, log: Path | None = None,
    on_line: Callable[[str], None] | None = None, keep_open: Sequence[int] = (),
    seconds: float | None = None,
) -> int:
    """Run `argv` with a progress bar, pass on each line of output, and return the exit status.

    The child process leads its own process group. The first signal of `STOPS` sends SIGTERM to the
    group, and the second sends SIGINT. The third signal, or the end of `GRACE_SECONDS`, sends
    SIGKILL to the group and all descendants. Output is passed on until the child process ends.

    Args:
        argv: program and arguments.
        title: title of the bar (None: no bar, because the caller shows one).
        reporter: shows the bar and notes.
        env: the complete environment of the program (None: inherited).
        cwd: working directory.
        log: file to which the output is appended.
        on_line: function that is called with each line of output (None: the bar shows the last
            line).
        keep_open: descriptors that the child process inherits.
        seconds: time after which the child process is stopped as by a signal; None: no limit.

    Raises:
        UsageError: the program is not installed.
        RunError: the program exceeded the time limit, and has ended.
        Interrupted: the user stopped the program, and it has ended.
    """
    with (
        reporter.bar(title, None) if title else nullcontext(),
        _Stopper(reporter.note) as stopper,  # before the child: signals may arrive at once
        _child(argv, env, cwd, keep_open) as child,
    ):
        stopper.watch(child)
        with _time_limit(seconds, stopper.stop) as exceeded:
            try:
                status = _pump(child, log, on_line or reporter.detail)
            except BaseException:
                stopper.stop()
                _drain(child)
                raise
        if exceeded.is_set():
            raise RunError(f"{argv[0]} has not ended within {seconds:g} s", code="program-timeout")
        if stopper.stopped:
            raise Interrupted(f"stopped by the user: {argv[0]}")
        return status


@contextmanager
def _time_limit(seconds: float | None, stop: Callable[[], None]) -> Iterator[threading.Event]:
    """Call `stop` and set the yielded event if the `with` block takes longer than `seconds`.

    None: the block has no time limit.
    """
    exceeded = threading.Event()

    def end() -> None:
        exceeded.set()
        stop()

    timer = threading.Timer(seconds or 0.0, end)
    if seconds is not None:
        timer.start()
    try:
        yield exceeded
    finally:
        timer.cancel()
        if seconds is not None:
            timer.join()


def follow(
    argv: Sequence[str], title: str, reporter: Reporter, *, what: str, check: type[TrimaranError],
    hint: str | None = None, env: Mapping[str, str] | None = None, cwd: Path | None = None,
    log: Path | None = None,
) -> None:
    """Run `stream`, and raise an error with the last lines of output if the program fails.

    The other arguments and errors are documented at `stream`.

    Args:
        what: the operation, for the message.
        check: class of the error.
        hint: hint of the error.
        log: new file for the whole output, which is removed if the program succeeds.

    Raises:
        TrimaranError: The exit status is not 0; the error has the class `check`.
    """
    last: deque[str] = deque(maxlen=20)

    def keep(line: str) -> None:
        last.append(line)
        reporter.detail(line)

    if log is not None:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
    status = stream(argv, title, reporter, env=env, cwd=cwd, log=log, on_line=keep)
    if status != 0:
        raise check("\n".join([f"{what} failed with status {status}:", *last]),
                    code="program-failed", hint=hint)
    if log is not None:
        log.unlink(missing_ok=True)


@contextmanager
def _child(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, keep_open: Sequence[int]
) -> Iterator[subprocess.Popen[str]]:
    """Start `argv` as the leader of a process group, with one pipe for all output."""
    try:
        child = subprocess.Popen(
            list(argv), env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", bufsize=1,
            start_new_session=True, pass_fds=list(keep_open),
        )
    except FileNotFoundError as error:
        if error.filename != argv[0]:
            raise
        raise _not_found(argv) from error
    with child:
        yield child


def _not_found(argv: Sequence[str]) -> UsageError:
    return UsageError(f"program not found: {argv[0]}", code="program-missing",
                      hint="`trimaran doctor` explains how to install it")


def _pump(child: subprocess.Popen[str], log: Path | None, on_line: Callable[[str], None]) -> int:
    assert child.stdout is not None  # noqa: S101 - narrows the type; PIPE was requested
    name, own = log or os.devnull, open_plain if log else None
    with named(Path(name)), open(name, "a", encoding="utf-8", opener=own) as sink:
        for line in child.stdout:
            sink.write(line)
            sink.flush()
            on_line(line.rstrip("\n"))
    return child.wait()


def _drain(child: subprocess.Popen[str]) -> None:
    """Read the remaining output of a child process: a full pipe would block its exit."""
    assert child.stdout is not None  # noqa: S101 - narrows the type; PIPE was requested
    for _ in child.stdout:
        pass
    child.wait()


class _Stopper:
    """A context manager whose thread executes the next of `_STEPS` for each signal.

    A thread is used because the main thread reads the output of the child process, and would
    handle a signal only when that process ends. Python itself writes the number of each signal to
    a pipe at once, and the thread reads that pipe.

    Attributes:
        stopped: whether a signal arrived, or `stop` was called.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.stopped = False
        self._child: subprocess.Popen[str] | None = None
        self._tell = tell
        self._asked, self._ask = os.pipe()
        os.set_blocking(self._ask, False)
        self._thread = threading.Thread(target=self._obey, daemon=True)
        self._handling = handling(self._note)
        self._before = -1

    def __enter__(self) -> _Stopper:
        self._before = signal.set_wakeup_fd(self._ask, warn_on_full_buffer=False)
        self._handling.__enter__()
        return self

    def watch(self, child: subprocess.Popen[str]) -> None:
        """Start the thread that stops `child` when this process receives a signal in `STOPS`.

        Signals that arrived before this call count as well.
        """
        self._child = child
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._handling.__exit__(None, None, None)
        signal.set_wakeup_fd(self._before)
        if self._child is not None:
            os.write(self._ask, _END)
            self._thread.join()
            if self.stopped:
                self._send(signal.SIGKILL)  # the leader has ended, but a descendant may still run
        os.close(self._asked)
        os.close(self._ask)

    def stop(self) -> None:
        """Execute the next step of `_STEPS`: signal the child process and print the note."""
        self.stopped = True
        os.write(self._ask, bytes([signal.SIGTERM]))

    def _note(self, *_: object) -> None:
        self.stopped = True

    def _obey(self) -> None:
        steps, wait = list(_STEPS), None
        while steps:
            if select.select([self._asked], [], [], wait)[0]:
                asked = os.read(self._asked, 1)
                if asked == _END:
                    return
                if asked[0] not in STOPS:
                    continue
            else:
                del steps[:-1]  # `GRACE_SECONDS` are over: only SIGKILL is left
            self.stopped = True
            signum, text = steps.pop(0)
            self._send(signum)
            self._tell(text.format(grace=GRACE_SECONDS))
            wait = GRACE_SECONDS

    def _send(self, signum: signal.Signals) -> None:
        """Send `signum` to the process group.

        SIGKILL is also sent to descendants that have left the group.
        """
        assert self._child is not None  # noqa: S101 - narrows the type; `watch` set it
        others: list[psutil.Process] = []
        if signum == signal.SIGKILL:
            with suppress(psutil.Error):
                others = psutil.Process(self._child.pid).children(recursive=True)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signum)
        for other in others:
            with suppress(psutil.Error):
                other.kill()
