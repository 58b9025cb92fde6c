"""Every command that reads a damaged or foreign file of a run names it in one error, quickly."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from finished import chain
from hostile import is_harmless, refusal
from jobplaces import write_program
from trimaran.cluster import jobs, watch
from trimaran.compare import comparison
from trimaran.errors import ExitCode, TrimaranError, UsageError
from trimaran.run import run_directory
from trimaran.terminal_safety import message
from trimaran.verdict import run_verdict

pytestmark = pytest.mark.timeout(60)  # a program that opened the FIFO would wait for ever

SECONDS = 10.0
"""Time limit of a command in seconds; reading a link to /dev/zero once took eleven."""

SMALL = 1 << 20

CALLS: dict[str, Callable[[Path], object]] = {
    "report": run_verdict.judge,
    "compare": lambda run: comparison.compare([run, run.with_name("sound")], []),
    "status": lambda run: watch.look([run]),
    "cancel": lambda run: jobs.cancel([run]),
    "resume": jobs.again,
    "logs": lambda run: watch.follow(run, lambda line: None, on=False),
}
"""Name of a `trimaran` command -> the library function that the command calls."""


def latin(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.write_bytes("42\nFür später\n".encode("latin-1"))


def fifo(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def zeros(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.symlink_to("/dev/zero")


def link(file: Path) -> None:
    """Move the file to another folder, and put a link to it in its place."""
    aside = file.parents[-3] / f"elsewhere-{file.name}"
    if not aside.parent.is_dir() or not os.access(aside.parent, os.W_OK):
        aside = Path(os.environ["TRIMARAN_CACHE"]).with_name(aside.name)
    if file.exists():
        shutil.move(file, aside)
    file.symlink_to(aside)


def folder(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.mkdir()


def listening(file: Path) -> None:
    file.unlink(missing_ok=True)
    here = Path.cwd()
    os.chdir(file.parent)  # the name of a socket has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(file.name)
    os.chdir(here)


def huge(file: Path) -> None:
    file.unlink(missing_ok=True)
    file.touch()
    os.truncate(file, 1 << 36)  # a sparse file occupies no space


WAYS: dict[str, Callable[[Path], None]] = {
    one.__name__: one for one in (latin, fifo, zeros, link, folder, listening, huge)
}
READ: dict[str, tuple[str, ...]] = {
    "run.json": tuple(CALLS),
    "job/ids": ("status", "cancel", "resume", "report", "compare"),
    "job/cancelled": ("status",),
    "job/job.sh": ("resume", "report", "compare"),
    "job/functions.sh": ("resume", "report", "compare"),
    "job/link-0001.json": ("status", "resume", "report", "compare"),
    "job/link-0002.end.json": ("status", "resume", "report", "compare"),
    "job/refused.json": ("status",),
    "log.txt": ("logs",),
    "metrics.jsonl": ("status", "report", "compare"),
    "result.json": ("report", "compare"),
    "environment.json": (),
    "recipe.yaml": ("report", "compare"),
    "app.yaml": ("report", "compare"),
}
"""File of a run directory -> the `trimaran` commands that read the file."""

HARMLESS = {
    ("latin", "log.txt"), ("latin", "metrics.jsonl", "status"),
    ("huge", "metrics.jsonl", "status"),
}
"""Cases without an error: (kind of damage, file), or (kind, file, `trimaran` command).

A log can contain any bytes, and `status` reads only the last lines of the metrics.
"""


@pytest.fixture
def run(checkout: Path, own_place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a run of two ended jobs, with a fake `squeue` that prints the file `bin/queue`."""
    directory = own_place / "run"
    chain(directory, checkout)
    (directory / "log.txt").write_text("job.sh: said\n")
    programs = own_place / "bin"
    programs.mkdir()
    write_program(programs / "squeue", '#!/bin/sh\ncat "${0%/*}/queue"\n')
    write_program(programs / "scancel", '#!/bin/sh\necho "$1" >>"$0.argv"\n')
    for name in ("srun", "sbatch"):
        write_program(programs / name, "#!/bin/sh\nexit 1\n")
    (programs / "queue").touch()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return directory


def slurm(run: Path, state: str) -> None:
    """Let the stand-in for `squeue` report `state` for the last job.

    The record of the last job's end is changed as well: exit status 75, an interrupted run.
    """
    (run.parent / "bin/queue").write_text(f"42|{state}|None\n")
    end = run / "job/link-0002.end.json"
    if end.is_file() and not end.is_symlink() and end.stat().st_size < SMALL:
        end.write_text(end.read_text(errors="replace").replace('"exit_status": 0',
                                                               '"exit_status": 75'))


def refused(run: Path, command: str) -> TrimaranError | None:
    """Return the error of a command on the run; None if it succeeds."""
    begun = time.monotonic()
    error = refusal(lambda: CALLS[command](run))
    assert error is None or time.monotonic() - begun < SECONDS
    return error


@pytest.mark.parametrize("name", READ)
def test_a_file_of_another_kind_is_named_by_every_command_that_reads_it(
    run: Path, name: str
) -> None:
    sound = shutil.copytree(run, run.with_name("sound"))
    for how, damage in WAYS.items():
        shutil.rmtree(run)
        shutil.copytree(sound, run)
        damage(run / name)
        for command in CALLS:
            if command not in ("report", "compare"):
                slurm(run, "RUNNING" if command == "cancel" else "FAILED")
            error = refused(run, command)
            if error is not None:
                assert error.exit_code in (ExitCode.USAGE, ExitCode.RUN)
                assert is_harmless(message(error.message))
            if command in READ[name] and not {(how, name), (how, name, command)} & HARMLESS:
                assert error is not None, (how, command)
                assert Path(name).name in str(error), (how, command, error)


@pytest.mark.parametrize("how", WAYS)
def test_a_job_is_ended_though_it_cannot_be_noted(run: Path, how: str) -> None:
    slurm(run, "RUNNING")
    WAYS[how](run / "job/cancelled")
    refused(run, "cancel")
    assert (run.parent / "bin/scancel.argv").read_text() == "42\n"


def test_a_damaged_link_keeps_nobody_from_ending_a_job(run: Path) -> None:
    (run / "job/link-0001.json").write_text("{")
    slurm(run, "RUNNING")
    assert refused(run, "cancel") is None
    assert (run.parent / "bin/scancel.argv").read_text() == "42\n"


def test_a_folder_of_jobs_that_is_a_link_is_not_followed(run: Path, own_place: Path) -> None:
    shutil.move(run / "job", own_place / "elsewhere")
    (run / "job").symlink_to(own_place / "elsewhere")
    before = {path.name: path.read_bytes() for path in (own_place / "elsewhere").iterdir()}
    for command in CALLS:
        error = refused(run, command)
        assert isinstance(error, UsageError) or command == "logs", (command, error)
    after = {path.name: path.read_bytes() for path in (own_place / "elsewhere").iterdir()}
    assert after == before


@pytest.mark.parametrize("text", ["--all\n", "-n\n", "\0\n", "none\n", "\x1b[31m\n", "\u0667\n"])
def test_what_is_no_number_of_a_job_reaches_no_command(run: Path, text: str) -> None:
    (run / "job/ids").write_text(text)
    for command in ("status", "cancel", "resume"):
        error = refused(run, command)
        assert isinstance(error, UsageError)
        assert command == "resume" or error.code == "run-damaged"


def test_the_last_words_of_a_long_log_are_found(run: Path) -> None:
    slurm(run, "FAILED")
    for file in run.glob("job/link-*"):
        file.unlink()
    with (run / "log.txt").open("wb") as log:
        log.truncate(1 << 36)
        log.seek(1 << 36)
        log.write(b"\njob.sh: n1: the image is not there\n")
    [found] = watch.look([run])
    assert found.reason == "job.sh: n1: the image is not there"


def test_a_line_without_end_is_said_in_parts(run: Path) -> None:
    (run / "log.txt").write_text("x" * (watch.LONGEST * 2 + 5))
    said: list[str] = []
    watch.follow(run, said.append, on=False)
    assert [len(part) for part in said] == [watch.LONGEST, watch.LONGEST, 5]


def test_the_script_of_a_run_is_touched_through_no_link(run: Path) -> None:
    """A run is refused if a file that its script writes, here `job/.step`, is a symbolic link."""
    slurm(run, "FAILED")
    (run / "job/.step").symlink_to(run.parent / "precious")
    with pytest.raises(UsageError, match=r"job/\.step"):
        run_directory.refuse_foreign(run)
