"""The one gateway that starts processes: argument lists only, never a shell."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimaran.errors import Interrupted, TrimaranError, UsageError

GRACE_SECONDS = 30.0
"""How long a stopped child may take to write its checkpoint before it is killed."""


@dataclass(frozen=True)
class Result:
    """What a finished process left: exit status and captured output."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


def shell_line(argv: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """Return `argv` (with `env` in front, if given) as one line to paste into a POSIX shell."""
    assignments = [f"{key}={shlex.quote(value)}" for key, value in (env or {}).items()]
    return " ".join([*assignments, *(shlex.quote(word) for word in argv)])


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
            list(argv), env=env, cwd=cwd, timeout=timeout, capture_output=True, text=True,
            errors="replace", check=False, input=stdin if stdin is not None else "",
        )
    except FileNotFoundError as error:
        raise UsageError(f"program not found: {argv[0]}", hint="see `trimaran doctor`") from error
    except subprocess.TimeoutExpired as error:
        if check is None:
            raise
        raise check(f"`{shell_line(argv)}` did not end within {timeout:g} s") from error
    result = Result(tuple(argv), done.returncode, done.stdout, done.stderr)
    if check is not None and result.returncode != 0:
        tail = "\n".join((result.stderr or result.stdout).strip().splitlines()[-15:])
        raise check(f"`{shell_line(argv)}` failed with status {result.returncode}:\n{tail}")
    return result


def stream(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] = lambda line: None,
    keep_open: Sequence[int] = (),
) -> int:
    """Run `argv`, hand each line of output to `on_line` and append it to `log`.

    The child inherits the descriptors in `keep_open`, and no others but its output.

    The child leads its own process group. Ctrl-C or SIGTERM here sends SIGTERM to
    the whole group, which gets `GRACE_SECONDS` to write its checkpoint, then
    SIGKILL; `Interrupted` is raised in either case. Returns the exit status
    (negative: the signal that killed the child).
    """
    def stop(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        with subprocess.Popen(
            list(argv), env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", bufsize=1,
            start_new_session=True, pass_fds=list(keep_open),
        ) as child:
            try:
                return _pump(child, log, on_line)
            except KeyboardInterrupt:
                _end_group(child)
                raise Interrupted(f"stopped by the user: {argv[0]}") from None
            except BaseException:
                _end_group(child)
                raise
    except FileNotFoundError as error:
        raise UsageError(f"program not found: {argv[0]}", hint="see `trimaran doctor`") from error
    finally:
        signal.signal(signal.SIGTERM, previous)


def _pump(
    child: subprocess.Popen[str], log: Path | None, on_line: Callable[[str], None]
) -> int:
    assert child.stdout is not None  # noqa: S101 - narrows the type; PIPE was asked for
    with open(log or os.devnull, "a", encoding="utf-8") as sink:  # noqa: PTH123 - devnull is a name
        for line in child.stdout:
            sink.write(line)
            sink.flush()
            on_line(line.rstrip("\n"))
    return child.wait()


def _end_group(child: subprocess.Popen[str]) -> None:
    for signum in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, signum)
            child.wait(timeout=GRACE_SECONDS)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
        # The leader is gone; a grandchild may still hold the group, so go on to SIGKILL.
