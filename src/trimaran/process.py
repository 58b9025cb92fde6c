"""The one gateway that starts processes: argument lists only, never a shell."""

from __future__ import annotations

import os
import select
import shlex
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

from trimaran.errors import Interrupted, RunError, TrimaranError, UsageError
from trimaran.files import named, open_plain
from trimaran.reporting import Reporter

GRACE_SECONDS = 30.0
"""How long a stopped child may take to write its checkpoint before it is killed."""

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""What ends a command: Ctrl-C, the batch system, a terminal that was closed."""

_STEPS = (
    (signal.SIGTERM, "stopping: it has {grace:.0f} s to bring what it does to an end;"
                     " stop it again to interrupt that"),
    (signal.SIGINT, "interrupting it; stop it once more to kill it"),
    (signal.SIGKILL, "killed"),
)
"""What a child gets for the first stop, the second, the third; and what the user is told."""

_END = b"\0"  # no signal has this number

Result = subprocess.CompletedProcess[str]
"""What a finished process left: exit status and captured output."""


def shell_line(argv: Sequence[str]) -> str:
    """Return `argv` as one line to paste into a POSIX shell."""
    return " ".join(quoted(word) for word in argv)


def quoted(word: str) -> str:
    """Return `word` as a POSIX shell reads it, by characters that a terminal shows and takes.

    A terminal and a pasting shell obey control characters; printf makes them anew (`$'...'` is
    not known to every sh). A line break stays: harmless in quotes, and `$(...)` would drop it.
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
    """Go on in Python's UTF-8 mode where the locale has another encoding.

    Names of files and classes are UTF-8: read as Latin-1, they would be stored as other ones.
    The program is started anew, in its own process.
    """
    if sys.getfilesystemencoding().lower() != "utf-8":
        words = [sys.executable, "-X", "utf8", *sys.orig_argv[1:]]
        os.execv(sys.executable, words)  # noqa: S606 - itself, without a shell


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    stdin: str | None = None,
    check: type[TrimaranError] | None = None,
) -> Result:
    """Run `argv` to its end and capture its output.

    Args:
        argv: program and arguments; nothing is interpreted by a shell.
        env: the whole environment of the child (None: inherited).
        cwd: working directory.
        stdin: what the child reads from its standard input (None: nothing); the one way for
            a secret, which never shows in the list of processes or in an error.
        timeout: seconds after which the child is killed and TimeoutExpired raised.
        check: raise this error, with the last lines of output, on a non-zero exit, and
            also instead of TimeoutExpired.
    """
    try:
        done = subprocess.run(
            list(argv), env=env, cwd=cwd, timeout=timeout, capture_output=True,
            encoding="utf-8", errors="replace", check=False,
            input=stdin if stdin is not None else "",
        )
    except FileNotFoundError as error:
        raise _not_found(argv) from error
    except subprocess.TimeoutExpired as error:
        if check is None:
            raise
        raise check(f"`{shell_line(argv)}` did not end within {timeout:g} s") from error
    if check is not None and done.returncode != 0:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-15:])
        raise check(f"`{shell_line(argv)}` failed with status {done.returncode}:\n{tail}")
    return done


def ask(
    argv: Sequence[str],
    seconds: float,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    keep_open: Sequence[int] = (),
) -> Result:
    """Run a program that has `seconds` to answer, and capture what it says.

    It leads its own process group: Ctrl-C on the terminal stops only this process, and what the
    program has started ends with it.

    Args:
        keep_open: descriptors that it inherits, such as that of a lock which it is to hold.

    Raises:
        UsageError: there is no such program.
        RunError: it cannot be started, or has not answered in time.
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
        raise RunError(f"{argv[0]} cannot be started: {error.strerror or error}") from error
    with child:
        try:
            said, complained = child.communicate(stdin, timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{argv[0]} has not answered within {seconds:g} s") from error
        finally:
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
    return Result(child.args, child.returncode, said, complained)


@contextmanager
def put_off() -> Iterator[None]:
    """Put off the first of `STOPS` until the block has ended; a second one interrupts it at once.

    Raises:
        KeyboardInterrupt: it was stopped; not where the block itself fails.
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
    """Have `handler` called for `STOPS`, but for those that are ignored (nohup does that)."""
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
    """Handle a signal as Python handles Ctrl-C."""
    raise KeyboardInterrupt


def stream(
    argv: Sequence[str],
    title: str | None,
    reporter: Reporter,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    keep_open: Sequence[int] = (),
) -> int:
    """Run `argv` in a bar, and hand on each line of output; return the exit status.

    The child leads its own process group. One of `STOPS` here sends SIGTERM to the whole
    group, a second one SIGINT, a third one SIGKILL to it and to all that it has started, as do
    `GRACE_SECONDS`. What the child says until its end is still handed on.

    Args:
        title: of the bar that shows that it goes on (None: the caller has a better one).
        log: file to append the output to.
        on_line: gets each line of output (None: the bar shows the last one).
        keep_open: descriptors that the child inherits, and no others but its output.

    Raises:
        Interrupted: it was stopped, and has ended.
    """
    with (
        reporter.bar(title, None) if title else nullcontext(),
        _Stopper(reporter.note) as stopper,  # first: a stop may come while the child starts
        _child(argv, env, cwd, keep_open) as child,
    ):
        stopper.watch(child)
        try:
            status = _pump(child, log, on_line or reporter.detail)
        except BaseException:
            stopper.stop()
            _drain(child)
            raise
        if stopper.stopped:
            raise Interrupted(f"stopped by the user: {argv[0]}")
        return status


def follow(
    argv: Sequence[str],
    title: str,
    reporter: Reporter,
    *,
    what: str,
    check: type[TrimaranError],
    hint: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> None:
    """`stream`, whose failure raises `check`: that `what` failed, with the last lines of output."""
    last: deque[str] = deque(maxlen=20)

    def keep(line: str) -> None:
        last.append(line)
        reporter.detail(line)

    status = stream(argv, title, reporter, env=env, cwd=cwd, on_line=keep)
    if status != 0:
        raise check("\n".join([f"{what} failed with status {status}:", *last]), hint=hint)


@contextmanager
def _child(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, keep_open: Sequence[int]
) -> Iterator[subprocess.Popen[str]]:
    """Start `argv` as the leader of a process group, with one pipe for all that it says."""
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
    return UsageError(f"program not found: {argv[0]}", hint="see `trimaran doctor`")


def _pump(child: subprocess.Popen[str], log: Path | None, on_line: Callable[[str], None]) -> int:
    assert child.stdout is not None  # noqa: S101 - narrows the type; PIPE was asked for
    name, own = log or os.devnull, open_plain if log else None
    with named(Path(name)), open(name, "a", encoding="utf-8", opener=own) as sink:
        for line in child.stdout:
            sink.write(line)
            sink.flush()
            on_line(line.rstrip("\n"))
    return child.wait()


def _drain(child: subprocess.Popen[str]) -> None:
    """Let a child that nobody listens to come to its end: a full pipe would hold it up."""
    assert child.stdout is not None  # noqa: S101 - narrows the type; PIPE was asked for
    for _ in child.stdout:
        pass
    child.wait()


class _Stopper:
    """Takes a child through `_STEPS`, one for each signal, in a thread: a handler may not wait.

    Its pipe gets the number of each signal at once, whichever thread the system gives it to. The
    main thread may hear of one only when it comes back from reading, at the child's own end.

    Attributes:
        stopped: whether anybody has asked for it.
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
        """Pass on to `child` what is asked for from now on, and what was before."""
        self._child = child
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._handling.__exit__(None, None, None)
        signal.set_wakeup_fd(self._before)
        if self._child is not None:
            os.write(self._ask, _END)
            self._thread.join()
            if self.stopped:
                self._send(signal.SIGKILL)  # the leader is gone, a grandchild may still be there
        os.close(self._asked)
        os.close(self._ask)

    def stop(self) -> None:
        """Take the next step."""
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
                del steps[:-1]  # its time is up
            self.stopped = True
            signum, text = steps.pop(0)
            self._send(signum)
            self._tell(text.format(grace=GRACE_SECONDS))
            wait = GRACE_SECONDS

    def _send(self, signum: signal.Signals) -> None:
        """Send `signum` to the group; SIGKILL also to what has left the group, as ranks do."""
        assert self._child is not None  # noqa: S101 - narrows the type; `watch` gave it
        others: list[psutil.Process] = []
        if signum == signal.SIGKILL:
            with suppress(psutil.Error):
                others = psutil.Process(self._child.pid).children(recursive=True)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, signum)
        for other in others:
            with suppress(psutil.Error):
                other.kill()
