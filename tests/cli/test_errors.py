"""Errors of every command: one message with its code; an unexpected exception leaves a file."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from trimaran import __version__, cli
from trimaran.cli import error_boundary
from trimaran.errors import RunError

MAIN = [sys.executable, "-c", "from trimaran.cli import main; main()"]


def outcome(monkeypatch: pytest.MonkeyPatch, command: Callable[[], object], *words: str) -> int:
    """Run `trimaran WORDS`, with `command` in place of the application; return the exit code."""
    monkeypatch.setattr(sys, "argv", ["trimaran", *words])
    monkeypatch.setattr(cli, "app", command)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def failing(error: Exception) -> Callable[[], object]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.EACCES, 4), (errno.EROFS, 4), (errno.ENOSPC, 4), (errno.EIO, 4), (errno.ESTALE, 4),
        (errno.EMFILE, 4), (errno.ENAMETOOLONG, 2), (errno.ENOTDIR, 2), (errno.EISDIR, 2),
        (errno.ELOOP, 2), (errno.ENOENT, 2),
    ],
)
def test_what_the_system_refuses_is_named_with_a_way_out(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused = OSError(number, os.strerror(number), "/srv/evidence.json")
    assert outcome(monkeypatch, failing(refused)) == code
    said = capsys.readouterr().err
    assert f"]: /srv/evidence.json: {os.strerror(number)}\n" in said
    assert "hint: " in said


@pytest.mark.parametrize("error", [OSError(errno.EBADF, "Bad file descriptor"), ValueError("odd")])
def test_a_fault_is_reported_and_its_traceback_kept(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert outcome(monkeypatch, failing(error), "list", "recipes") == 70
    said = capsys.readouterr().err
    assert "[fault]" in said
    assert __version__ in said
    assert "Traceback" not in said
    [file] = tmp_path.glob("trimaran-fault-*.txt")
    assert str(file) in said.replace("\n", "")
    kept = file.read_text()
    assert "trimaran list recipes" in kept
    assert f"{type(error).__name__}: {error}" in kept


def test_a_fault_without_a_place_for_the_file_still_ends_with_its_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    assert outcome(monkeypatch, failing(ValueError("odd"))) == 70
    assert "in command" in capsys.readouterr().err, "the traceback, on the terminal"


def test_a_full_memory_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome(monkeypatch, failing(MemoryError())) == 4
    assert "[memory-full]" in capsys.readouterr().err


def test_nobody_answering_a_question_is_no_failed_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def asks() -> None:
        try:
            raise typer.Abort
        except typer.Abort:
            sys.exit(1)  # as typer does

    assert outcome(monkeypatch, asks) == 130


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["run", ""], "argument-invalid", "argument 2"),
        (["run", "a\udcffb"], "text-not-utf8", "'a\\udcffb'"),
        (["run", "--out=\udcff"], "text-not-utf8", "argument 2"),
    ],
)
def test_an_argument_that_no_file_could_hold_is_refused(
    words: list[str], code: str, named: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert outcome(monkeypatch, failing(AssertionError("not reached")), *words) == 2
    shown = capsys.readouterr().err
    assert f"[{code}]" in shown
    assert named in shown
    assert "hint: " in shown


@pytest.mark.parametrize("name", ["TRIMARAN_CACHE", "TRIMARAN_ROOT", "HOME", "XDG_CACHE_HOME"])
def test_a_folder_of_the_environment_that_is_no_text_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "/srv/\udcff")
    assert outcome(monkeypatch, failing(AssertionError("not reached"))) == 2
    shown = capsys.readouterr().err
    assert "[text-not-utf8]" in shown
    assert f"variable {name} " in shown


def test_a_working_folder_that_is_gone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert outcome(monkeypatch, failing(AssertionError("not reached"))) == 2
    shown = capsys.readouterr().err
    assert "[working-directory-unusable]" in shown
    assert "hint: " in shown


@pytest.mark.parametrize(
    "command",
    ["list recipes", "list recipes --json", "run resnet-imagenet/cpu-quickstart --dry-run"],
)
def test_a_reader_that_has_gone_ends_it_quietly(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(
            [*MAIN, *command.split()], stdout=output, stderr=subprocess.PIPE, check=False,
            env={**os.environ, "ENGINE": "host"},
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("command", ["list recipes", "list recipes --json"])
def test_a_full_disk_under_the_output_is_told(command: str) -> None:
    with Path("/dev/full").open("wb") as output:
        done = subprocess.run(
            [*MAIN, *command.split()], stdout=output, stderr=subprocess.PIPE, check=False,
            text=True,
        )
    assert done.returncode == 4
    assert "error[disk-full]: " in done.stderr
    assert "Exception ignored" not in done.stderr


def test_closed_outputs_change_no_exit_code() -> None:
    line = '"$@" >&-; echo $?; "$@" x 2>&-; echo $?; "$@" x 2>/dev/full; echo $?'
    done = subprocess.run(
        ["sh", "-c", line, "sh", *MAIN, "show", "recipes"], capture_output=True, text=True,
        check=False, env={**os.environ, "PYTHONUNBUFFERED": ""},  # output is buffered
    )
    assert done.stdout.split() == ["2", "2", "2"]


def test_an_ascii_terminal_shows_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.run(
        [*MAIN, "show", "recipes", "größe"], capture_output=True, check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert done.returncode == 2
    assert b"gr\\xf6\\xdfe" in done.stderr


def test_an_expected_failure_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = failing(RunError("no data", code="file-missing", hint="get them"))
    assert outcome(monkeypatch, command) == 4
    assert capsys.readouterr().err == "error[file-missing]: no data\nhint:  get them\n"
    assert error_boundary.guarded(lambda: sys.exit(5)) == 5


def test_an_error_of_a_command_with_json_is_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = failing(RunError("no data", code="file-missing", hint="get them"))
    monkeypatch.setattr(sys, "argv", ["trimaran", "list", "recipes", "--json"])
    assert error_boundary.guarded(command) == 4
    assert json.loads(capsys.readouterr().out) == {"error": {
        "code": "file-missing", "exit_code": 4, "message": "no data", "hint": "get them",
    }}
