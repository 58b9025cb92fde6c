"""The help of every command, as one golden file; run as a script, it writes the file anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from trimaran import cli

GOLDEN = Path(__file__).parent / "golden/help.txt"


def commands() -> list[list[str]]:
    """Return the words of every command: `[]`, `["run"]`, `["data", "get"]`, …"""
    found: list[list[str]] = [[]]
    for info in cli.app.registered_commands:
        found.append([str(info.name or info.callback.__name__)])  # type: ignore[union-attr]
    for group in cli.app.registered_groups:
        found.append([str(group.name)])
        for info in group.typer_instance.registered_commands:  # type: ignore[union-attr]
            found.append([str(group.name), str(info.name)])
    return found


def ask(words: list[str]) -> str:
    """Return what `trimaran WORDS --help` prints on a terminal of 80 columns."""
    done = CliRunner().invoke(
        cli.app, [*words, "--help"], prog_name="trimaran", env={"COLUMNS": "80", "TERM": "dumb"}
    )
    assert done.exit_code == 0, done.output
    return done.output


def text() -> str:
    """Return the content of the golden file."""
    return "\n".join(f"$ trimaran {' '.join([*w, '--help'])}\n{ask(w)}" for w in commands())


def test_help_is_the_golden_file() -> None:
    assert text() == GOLDEN.read_text(), "run: make generate"


def test_every_command_has_a_summary_and_most_an_example() -> None:
    without = {"data list", "doctor", "schema"}  # nothing to fill in
    for words in commands():
        name = " ".join(words)
        if name not in {"", "cache", "data"} | without:
            assert f"Example: trimaran {name}" in " ".join(ask(words).split()), name


def test_help_answers_quickly() -> None:
    """Importing the libraries of the work for the help alone is the mistake this guards."""
    code = "import sys; from trimaran import cli; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"rich", "pydantic", "matplotlib", "hpccm", "spython", "requests", "yaml", "jinja2"}
    assert heavy & set(done.stdout.split()) == set()


if __name__ == "__main__":
    GOLDEN.write_text(text())
