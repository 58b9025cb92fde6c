"""What stands around every command: words are text, errors have a code, faults are reported."""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import shlex
import sys
import tempfile
import traceback
from collections.abc import Callable

import typer

from trimaran import __version__
from trimaran.errors import ExitCode, Fault, RunError, TrimaranError, UsageError, causes, of_system

PLACES = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
"""Variables of the environment that name folders, besides `TRIMARAN_…`."""


def guarded(command: Callable[[], object]) -> int:
    """Call `command` and return its exit code, after telling what went wrong."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may have what the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        _check_words()
        code = _called(command)
        _flush()
    except BrokenPipeError:
        code = ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as error:
        code = _tell(error)
    else:
        return code
    _let_go_of_output()
    return code


def _called(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as ended:
        reasons = list(causes(ended))
        # typer and rich end with 1 when the reader of a pipe has gone, or nobody answers.
        if any(isinstance(reason, BrokenPipeError) for reason in reasons):
            raise BrokenPipeError from ended
        if any(isinstance(reason, typer.Abort) for reason in reasons):
            return ExitCode.INTERRUPTED
        return ended.code if isinstance(ended.code, int) else ExitCode.PASS
    return ExitCode.PASS


def _check_words() -> None:
    """Refuse what no file and no JSON could hold, before anything is made.

    Raises:
        UsageError: an argument is empty, something is no UTF-8, or the working folder is gone.
    """
    for number, word in enumerate(sys.argv[1:], start=1):
        if not word:
            raise UsageError(
                f"argument {number} is empty", hint="a variable that is not set? Leave it out"
            )
        _check_text(f"argument {number}", word)
    try:
        _check_text("the working folder", os.getcwd())  # noqa: PTH109 - its name is all there is
    except OSError as error:
        raise UsageError(
            f"the working folder cannot be used: {error.strerror}",
            hint="it was removed, or is closed to you: cd to another one",
        ) from error
    for name, value in os.environ.items():
        if name in PLACES or name.startswith("TRIMARAN_"):
            _check_text(f"the variable {ascii(name)[1:-1]}", value)


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{what} is no UTF-8 text: {text!a}", hint="rename it, or link to it by such a name"
        ) from None


def _flush() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(
            f"standard output: {error.strerror}", hint="write to another place, or to a terminal"
        ) from error


def _let_go_of_output() -> None:
    """Have what could not be written forgotten: Python would try again at its end, and complain."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tell(error: Exception) -> int:
    """Print what went wrong and return the exit code."""
    known: TrimaranError | None = None
    if isinstance(error, TrimaranError):
        known = error
    elif isinstance(error, OSError):
        known = of_system(error)
    elif isinstance(error, MemoryError):
        known = RunError("the memory is full", code="memory-full",
                         hint="end other programs, or ask for more memory")
    told = known or _fault(error)
    # Where standard error is closed or full, the exit code still tells.
    with contextlib.suppress(OSError, SystemExit):
        from trimaran.cli.terminal import show_error

        show_error(told)
        if "--json" in sys.argv[1:]:
            _print_json(told)
    return told.exit_code


def _print_json(error: TrimaranError) -> None:
    """Print an error as JSON on standard output, in place of the result of the command."""
    from trimaran.cli.common import say

    say(json.dumps({"error": {
        "code": error.code, "exit_code": int(error.exit_code), "message": error.message,
        "hint": error.hint,
    }}, indent=2))


def _fault(error: Exception) -> Fault:
    """Write the traceback to a file, and return what to say of it."""
    text = "\n".join([
        f"trimaran {__version__}, Python {platform.python_version()}, {platform.platform()}",
        shlex.join(["trimaran", *sys.argv[1:]]),
        "", *traceback.format_exception(error),
    ])
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="trimaran-fault-", suffix=".txt", delete=False, encoding="utf-8",
            errors="backslashreplace",
        ) as file:
            file.write(text)
        where = f"with {file.name}, which has the details"
    except OSError:  # nowhere to write to: better on the terminal than lost
        where = f"with this:\n{text}"
    return Fault(
        f"a fault of Trimaran {__version__}: {type(error).__name__}: {error}",
        hint=f"nothing you did wrong; please report it {where}",
    )
