"""Long work shows progress: a bar on a terminal, and lines elsewhere."""

from __future__ import annotations

import ast
import io
import itertools
import os
import re
import time
from pathlib import Path

import pytest

import trimaran
from trimaran.cli import terminal
from trimaran.cli.terminal import Bar, Screen, Terminal

QUICK = 0.05


def reporter_on(out: io.StringIO, *, tty: bool) -> Terminal:
    return Terminal(Screen(file=out, force_terminal=tty, width=90, color_system=None))


def wait_for(out: io.StringIO, lines: int) -> None:
    deadline = time.monotonic() + 60
    while out.getvalue().count("\n") < lines and time.monotonic() < deadline:
        time.sleep(0.005)


def test_a_pipe_is_told_what_goes_on_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SILENT_SECONDS", QUICK)
    out = io.StringIO()
    shown = reporter_on(out, tty=False)
    with shown.bar("packing photos", 400, unit="images") as advance:
        advance(100)
        wait_for(out, 2)
    with shown.bar("building", None):
        shown.detail("Setting up \x1b[31mgcc")
        wait_for(out, 4)
    first, second, last, built = out.getvalue().splitlines()[:4]
    assert first.startswith("  packing photos: 100 of 400 images (25%), 0 s, about ")
    assert first.split(",")[:2] == second.split(",")[:2]
    assert last.startswith("  packing photos (0.")
    assert built == r"  building: 0 s; Setting up \u001b[31mgcc"


def test_a_quick_look_leaves_no_line() -> None:
    out = io.StringIO()
    with reporter_on(out, tty=False).bar("verifying", None):
        pass
    assert out.getvalue() == ""


def test_it_is_said_soon_enough() -> None:
    assert terminal.SILENT_SECONDS < 5


def test_lines_of_progress_become_rarer() -> None:
    first = [*itertools.islice(terminal.silences(), 6)]
    assert first == [4, 8, 16, 32, 60, 60]
    lines_in_ten_minutes = sum(at <= 600 for at in itertools.accumulate(
        itertools.islice(terminal.silences(), 100)
    ))
    assert lines_in_ten_minutes < 15


def test_who_hears_something_else_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a training prints its steps, Trimaran prints no lines of progress between them."""
    monkeypatch.setattr(terminal, "SILENT_SECONDS", 0.5)
    out = io.StringIO()
    shown = reporter_on(out, tty=False)
    with shown.bar("training", None):
        for number in range(14):
            shown.line(f"step {number}")
            time.sleep(0.05)
    assert "training:" not in out.getvalue()


def test_the_innermost_bar_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SILENT_SECONDS", QUICK)
    out = io.StringIO()
    shown = reporter_on(out, tty=False)
    with shown.bar("building", None), shown.bar("hashing", 2e6, unit="B") as advance:
        advance(1e6)
        wait_for(out, 1)
    assert out.getvalue().startswith("  hashing: 1.0 of 2.0 MB (50%), ")


def test_a_terminal_gets_a_bar_that_leaves_one_line() -> None:
    out = io.StringIO()
    shown = reporter_on(out, tty=True)
    with shown.bar("packing [bold]photos", 4, unit="images") as advance:
        advance(2)
        shown.note("a line above it")
    text = out.getvalue()
    assert "packing [bold]photos" in text
    assert "2 of 4 images (50%)" in text
    assert "\x1b[2K" in text, "it is wiped at the end"
    assert re.search(r"  packing \[bold\]photos \(\d\.\d s\)$", text.splitlines()[-1])


def test_a_terminal_without_columns_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal of 0 columns, lines are printed, because no bar can be drawn.

    Open MPI gives its ranks such a terminal.
    """
    monkeypatch.setattr(terminal, "SILENT_SECONDS", QUICK)
    leader, follower = os.openpty()
    with os.fdopen(leader, "rb"), os.fdopen(follower, "w") as out:
        assert os.get_terminal_size(out.fileno()).columns == 0
        shown = Terminal(Screen(file=out, force_terminal=True))
        with shown.bar("hashing", None):
            time.sleep(3 * QUICK)
        told = os.read(leader, 10_000).decode()
    assert "hashing: 0 s" in told
    assert "━" not in told


def test_no_time_is_promised_before_anything_is_done() -> None:
    assert "left" not in Bar("packing", 10, "images", 0).text()
    assert Bar("resumed", 10, "images", 5).text().startswith("5 of 10 images (50%), 0 s")


LONG = {
    "data/packing/packer.py": ["_kept", "_make"],
    "data/packing/class_folders.py": ["listing"],
    "data/packing/ilsvrc.py": ["listing"],
    "data/dataset_json.py": ["file_faults"],
    "data/packing/arrays.py": ["pack"],
    "data/squashfs.py": ["make"],
    "bundles/archive.py": ["write", "check"],
    "images/wheelhouse.py": ["_get_all"],
    "engines/host.py": ["_make", "_contents", "test"],
    "data/contracts.py": ["_check"],
    "net/transfer.py": ["copy", "receive"],
    "process.py": ["stream"],
    "images/bases.py": ["_pull"],
    "images/resolve.py": ["_resolve"],
    "run/image.py": ["_pinned_image", "foreign_image"],
    "provenance/rebuild.py": ["check"],
    "run/resume.py": ["_launch"],
    "engines/build_steps.py": ["_intact", "_build_one"],
    "engines/apptainer.py": ["_built"],
    "cli/cache.py": ["cache_list", "cache_prune"],
    "cli/containers.py": ["self_test"],
    "cli/inspect.py": ["inspect"],
    "cli/runs.py": ["run"],
    "cli/supply_chain.py": ["list_materials", "audit_image", "verify"],
}
"""Source file -> its functions that can take long; each of them must open a progress bar.

`process.stream` and `process.follow` open the bars of child processes: builds, self-tests, pushes,
pulls, trainings.
"""


@pytest.mark.parametrize("file", LONG)
def test_what_takes_long_stands_in_a_bar(file: str) -> None:
    tree = ast.parse((Path(trimaran.__file__).parent / file).read_text())
    found = {
        node.name for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(inner, ast.Attribute) and inner.attr == "bar" for inner in ast.walk(node)
        )
    }
    assert set(LONG[file]) - found == set()
