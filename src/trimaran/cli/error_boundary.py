"""Run commands with checked arguments, report their errors and faults, and set exit codes."""

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
from pathlib import Path

import typer

from trimaran import __version__
from trimaran.errors import ExitCode, Fault, RunError, TrimaranError, UsageError, causes, of_system

PLACES = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
"""Environment variables with paths of folders. Their values, and the values of all variables named
`TRIMARAN_…`, must be UTF-8 text."""


def guarded(command: Callable[[], object]) -> int:
    """Call `command`, report an error if it fails, and return the exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the terminal may lack characters of a name
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
        code = _report(error)
    else:
        return code
    _discard_output()
    return code


def _called(command: Callable[[], object]) -> int:
    try:
        command()
    except SystemExit as ended:
        reasons = list(causes(ended))
        # typer and rich exit with 1 if the reader of a pipe is gone, or a prompt gets no answer.
        if any(isinstance(reason, BrokenPipeError) for reason in reasons):
            raise BrokenPipeError from ended
        if any(isinstance(reason, typer.Abort) for reason in reasons):
            return ExitCode.INTERRUPTED
        return ended.code if isinstance(ended.code, int) else ExitCode.PASS
    return ExitCode.PASS


def _check_words() -> None:
    """Check the arguments, the working directory and the environment before a command starts.

    Text that is not UTF-8 cannot be written into JSON files.
    """
    for number, word in enumerate(sys.argv[1:], start=1):
        if not word:
            raise UsageError(
                f"argument {number} is empty", code="argument-invalid",
                hint="leave it out; a shell variable that is not set gives an empty argument",
            )
        _check_text(f"argument {number}", word)
    try:
        _check_text("the working directory", str(Path.cwd()))
    except OSError as error:
        raise UsageError(
            f"the working directory cannot be used: {error.strerror}",
            code="working-directory-unusable",
            hint="it was removed, or you have no permission for it: cd to another directory",
        ) from error
    for name, value in os.environ.items():
        if name in PLACES or name.startswith("TRIMARAN_"):
            _check_text(f"the variable {ascii(name)[1:-1]}", value)


def _check_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{what} is not UTF-8 text: {text!a}", code="text-not-utf8",
            hint="rename the file or folder, or make a link to it with a name in UTF-8",
        ) from None


def _flush() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RunError(
            f"standard output: {error.strerror}", code="file-unwritable",
            hint="redirect it to another place, or to a terminal",
        ) from error


def _discard_output() -> None:
    """Discard output that could not be written; otherwise Python would fail to write it at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _report(error: Exception) -> int:
    """Print `error`, and return the exit code.

    If the error is unexpected, its traceback is written to a file, which the message names.
    """
    known: TrimaranError | None = None
    if isinstance(error, TrimaranError):
        known = error
    elif isinstance(error, OSError):
        known = of_system(error)
    elif isinstance(error, MemoryError):
        known = RunError("the memory is full", code="memory-full",
                         hint="end other programs, or ask for more memory")
    shown = known or _fault(error)
    # If standard error is closed or full, only the exit code reports the error.
    with contextlib.suppress(OSError, SystemExit):
        from trimaran.cli.terminal import show_error

        show_error(shown)
        if "--json" in sys.argv[1:]:
            _print_json(shown)
    return shown.exit_code


def _print_json(error: TrimaranError) -> None:
    from trimaran.cli.common import say

    say(json.dumps({"error": {
        "code": error.code, "exit_code": int(error.exit_code), "message": error.message,
        "hint": error.hint,
    }}, indent=2))


def _fault(error: Exception) -> Fault:
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
        where = f"with the details in {file.name}"
    except OSError:  # no writable folder for temporary files
        where = f"with these details:\n{text}"
    return Fault(
        f"a fault of Trimaran {__version__}: {type(error).__name__}: {error}", code="fault",
        hint=f"this is not caused by your input; please report it {where}",
    )
