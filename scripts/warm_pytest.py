"""Run pytest repeatedly, each time in a fork of a process that has imported the framework.

This saves time, because importing TensorFlow takes longer than most tests. `WarmPytest` starts this
script with the interpreter of an environment. For each run of pytest, it writes a line to the
standard input of the script: the arguments of the function `tried` as a JSON object. The script
answers with a line on its standard output: the exit status of pytest, or `null` if pytest exceeded
the time limit.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

import pytest

SLOW_TO_IMPORT = ("numpy", "torch", "tensorflow", "pydantic", "typer")
"""Packages to import before the fork; packages of this repository must be imported after it."""


class WarmPytest:
    """A process that executes this script with an interpreter, and runs tests on request."""

    def __init__(self, interpreter: str) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        for name in ("TRIMARAN_ROOT", "PYTHONDONTWRITEBYTECODE", "TEST_UNTIL"):
            environment.pop(name, None)
        self._interpreter = interpreter
        self._process = subprocess.Popen(
            [interpreter, __file__], env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )

    def run(self, **asked: Any) -> int | None:
        """Call the function `tried` in the started process; return its result.

        `asked` contains the arguments of `tried`.

        Raises:
            ChildProcessError: The process has ended.
        """
        try:
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            return cast("int | None", json.loads(cast("IO[str]", self._process.stdout).readline()))
        except (OSError, ValueError) as error:
            raise ChildProcessError(f"{self._interpreter} {__file__} ended: see above") from error

    def close(self) -> None:
        """Stop the process and its test."""
        self._process.communicate()  # the process ends at the end of its input


def child(folder: str, words: Sequence[str], path: Sequence[str], log: str) -> int:
    """Run pytest in this process; return its exit status."""
    os.setsid()  # processes that the test starts end with it
    os.chdir(folder)
    with Path(log).open("wb") as file, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path[:0] = [folder, *path]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    # Python identifies bytecode by size and modification second of its source, which may be equal
    # for two consecutive faults. Therefore no bytecode is written.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    status = int(pytest.main([*words]))
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def ended(pid: int, limit: float) -> bool:
    """Return whether the process ended within `limit` seconds.

    If standard input is closed while the process runs, the result is False at once, because nobody
    waits for an answer.
    """
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle, sys.stdin], [], [], limit)
    finally:
        os.close(handle)
    return handle in ready


def tried(folder: str, words: list[str], path: list[str], log: str, limit: float) -> int | None:
    """Run pytest in a fork; return its exit status.

    Args:
        folder: working directory.
        words: arguments of pytest.
        path: folders to insert at the beginning of `sys.path`.
        log: path of the file for the output.
        limit: time limit in seconds; the result is None if pytest takes longer.
    """
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(child(folder, words, path, log))
        except BaseException:
            traceback.print_exc()
            os._exit(3)  # exit status of pytest for an internal error
    in_time = ended(pid, limit)
    with contextlib.suppress(ProcessLookupError):  # also kills processes that the test has started
        os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if in_time else None


def main() -> None:
    """Read requests from standard input, and write the answers, one line each."""
    for name in SLOW_TO_IMPORT:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in iter(sys.stdin.readline, ""):
        sys.stdout.write(json.dumps(tried(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
