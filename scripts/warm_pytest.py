"""Run pytest as often as asked, each time in a fork of a process that has the framework imported.

Importing TensorFlow takes longer than most tests. `WarmPytest` starts this script with the
interpreter of an environment, and writes one JSON object a line to it: the arguments of `tried`.
The answer is a line with pytest's exit status, `null` if it took too long.
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
"""Never a package of this repository: a fork has to import its own copy, which is wrong."""


class WarmPytest:
    """This script, running with the interpreter of an environment."""

    def __init__(self, interpreter: str) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        for name in ("TRIMARAN_ROOT", "PYTHONDONTWRITEBYTECODE"):
            environment.pop(name, None)
        self._interpreter = interpreter
        self._process = subprocess.Popen(
            [interpreter, __file__], env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )

    def run(self, **asked: Any) -> int | None:
        """Return what `tried` returns there.

        Raises:
            ChildProcessError: the process has ended.
        """
        try:
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            return cast("int | None", json.loads(cast("IO[str]", self._process.stdout).readline()))
        except (OSError, ValueError) as error:
            raise ChildProcessError(f"{self._interpreter} {__file__} ended: see above") from error

    def close(self) -> None:
        """End it, and the test that it runs."""
        self._process.communicate()  # the end of its input is what ends it


def child(folder: str, words: Sequence[str], path: Sequence[str], log: str) -> int:
    """Run pytest in this process; return its exit status."""
    os.setsid()  # what the test starts ends with it
    os.chdir(folder)
    with Path(log).open("wb") as file, Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.path[:0] = [folder, *path]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    # Python takes a compiled file for that of a source of equal size and equal second of change,
    # and two faults that are tried in turn may have both in common: none is written.
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    status = int(pytest.main([*words]))
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def ended(pid: int, limit: float) -> bool:
    """Return whether the process ended within `limit` seconds.

    False, too, once standard input is closed: then nobody waits for the answer any more.
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
        folder: where it runs.
        words: its arguments.
        path: folders that modules are imported from, before all others.
        log: the file for what it prints.
        limit: seconds that it may take; the result is None if it takes longer.
    """
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(child(folder, words, path, log))
        except BaseException:
            traceback.print_exc()
            os._exit(3)  # pytest's own number for an internal error
    in_time = ended(pid, limit)
    with contextlib.suppress(ProcessLookupError):  # also what the test itself has started
        os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if in_time else None


def main() -> None:
    """Read requests from standard input and write the answers, a line each, until it ends."""
    for name in SLOW_TO_IMPORT:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in iter(sys.stdin.readline, ""):
        sys.stdout.write(json.dumps(tried(**json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
