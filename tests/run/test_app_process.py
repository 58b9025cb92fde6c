"""Test that `run.json` records every end of the app, and that the error names what to do."""

from __future__ import annotations

import ast
import errno
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from finished import launch
from samples import GOOD
from trimaran import paths, process
from trimaran.error_codes import CODES
from trimaran.errors import Interrupted, RunError
from trimaran.launch.specification import Command
from trimaran.recipes import library
from trimaran.reporting import Silent
from trimaran.run import app_process, run_directory
from trimaran.run.record import DataRecord, ImageRecord, RunRecord

IMAGE = ImageRecord(
    name="resnet-imagenet-torch-cpu", engine="host", reference="/venv", digest=None,
    inputs="ab" * 32,
)


@pytest.fixture
def out(own_place: Path) -> Path:
    return own_place / "run"


@pytest.fixture
def begun(checkout: Path, out: Path) -> Iterator[tuple[RunRecord, int]]:
    """Start a run, and yield its record and its lock."""
    path = checkout / "recipes/resnet-imagenet/cpu-smoke.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(GOOD))
    data = DataRecord(name="fashion-mnist", path="/data", sha256="cd" * 32)
    recipe = library.load("resnet-imagenet/cpu-smoke")
    record = run_directory.start(out, recipe, {}, IMAGE, [data], launch(recipe, {}, IMAGE))
    with run_directory.alone(out) as lock:
        yield record, lock


def app(code: str) -> Command:
    """Return the command of an app that executes `code`."""
    program = f"import os, signal, sys, time\n{code}"
    return Command((sys.executable, "-c", program), {"PATH": os.environ["PATH"]})


def test_the_exit_codes_are_those_of_the_app_contract() -> None:
    apps = paths.repository() / "apps"
    tree = ast.parse((apps / "trainkit/src/trainkit/exits.py").read_text())
    [codes] = [node for node in tree.body if getattr(node, "name", "") == "ExitCode"]
    assert isinstance(codes, ast.ClassDef)
    raised = {ast.literal_eval(node.value) for node in codes.body if isinstance(node, ast.Assign)}
    said = re.findall(r"^\| (\d+) \| ", (apps / "README.md").read_text(), re.MULTILINE)
    assert raised == set(map(int, said))
    assert set(app_process.APP_ERRORS) == raised - {0, 130}  # success, Ctrl-C


def test_each_exit_code_of_the_contract_has_an_error_code(
    out: Path, begun: tuple[RunRecord, int]
) -> None:
    for status, (code, _) in app_process.APP_ERRORS.items():
        error = app_process._failure(out, status, app_process.oom_kills(), "")
        assert (error.code, code in CODES) == (code, True)


def failure(out: Path, begun: tuple[RunRecord, int], code: str) -> RunError:
    with pytest.raises(RunError) as caught:
        app_process.perform(out, begun[0], app(code), begun[1], Silent())
    assert run_directory.load(out).status == "failed"
    return caught.value


def test_a_killed_app_names_the_signal_and_what_to_do(
    out: Path, begun: tuple[RunRecord, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter((app_process.OomKills(0, 4), app_process.OomKills(1, 5)))
    monkeypatch.setattr(app_process, "oom_kills", lambda: next(kills))
    error = failure(out, begun, "os.kill(os.getpid(), signal.SIGKILL)")
    assert error.code == "app-killed"
    assert "(SIGKILL)" in error.message
    assert "killed 1 in" in error.message
    assert "(exit status -9)" in error.message
    assert "--mem" in str(error.hint)
    assert f"trimaran resume {out}" in str(error.hint)


def test_a_launcher_whose_rank_was_killed_for_memory_says_so(
    out: Path, begun: tuple[RunRecord, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = iter((app_process.OomKills(0, 4), app_process.OomKills(1, 5)))
    monkeypatch.setattr(app_process, "oom_kills", lambda: next(kills))
    error = failure(out, begun, "sys.exit(1)")
    assert error.code == "app-failed"
    assert "killed 1 in" in error.message


def test_a_checkpoint_that_was_not_written_names_the_file_system(
    out: Path, begun: tuple[RunRecord, int]
) -> None:
    error = failure(out, begun, f"sys.exit({app_process._NOT_WRITTEN})")
    assert error.code == "file-unwritable"
    assert "MB free on /" in str(error.hint)


def test_a_full_disk_is_named_and_does_not_leave_the_run_running(
    out: Path, begun: tuple[RunRecord, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_process, "LOG", "/dev/full")
    monkeypatch.setattr("trimaran.process.open_plain", os.open)  # /dev/full is not a plain file
    error = failure(out, begun, "print(1, flush=True); time.sleep(60)")
    assert error.code == "file-unwritable"
    assert error.message.startswith(f"/dev/full: {os.strerror(errno.ENOSPC)} (")
    assert "MB free on /" in error.message
    assert f"trimaran resume {out}" in str(error.hint)


@pytest.mark.parametrize("signum", process.STOPS)
def test_every_stop_is_recorded_and_the_run_can_go_on(
    out: Path, begun: tuple[RunRecord, int], signum: signal.Signals
) -> None:
    code = f"os.kill(os.getppid(), {int(signum)}); time.sleep(60)"
    with pytest.raises(Interrupted) as stopped:
        app_process.perform(out, begun[0], app(code), begun[1], Silent())
    assert f"trimaran resume {out}" in str(stopped.value.hint)
    record = run_directory.load(out)
    assert (record.status, record.exit_status) == ("interrupted", 130)


def test_a_terminal_that_is_gone_does_not_keep_the_end_from_being_recorded(
    out: Path, begun: tuple[RunRecord, int]
) -> None:
    """The end of a run is recorded if its closed terminal sends SIGHUP and accepts no output."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from trimaran.run import app_process, run_directory\n"
        "from trimaran.launch.specification import Command\n"
        "from trimaran.cli.terminal import Terminal\n"
        "out = Path(sys.argv[1])\n"
        "code = 'import os, signal, time; os.kill(os.getppid(), signal.SIGHUP); time.sleep(60)'\n"
        "again = Command((sys.executable, '-c', code), {})\n"
        "with open('lock', 'w') as lock:\n"
        "    app_process.perform(out, run_directory.load(out), again, lock.fileno(), Terminal())\n"
    )
    with Path("/dev/full").open("w") as gone:
        subprocess.run(
            [sys.executable, "-c", program, str(out)], stderr=gone, check=False, timeout=60
        )
    assert run_directory.load(out).status == "interrupted"
