"""Test the help of every command: the golden file, summaries, examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import commandlines
import goldens
from trimaran import __version__, cli
from trimaran.cli.common import GROUPS


def test_help_is_the_golden_file() -> None:
    assert goldens.help_text() == (goldens.FOLDER / "help.txt").read_text(), "run: make generate"


def test_the_first_screen_lists_each_command_once_with_a_whole_sentence() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(words[0] for words in goldens.commands() if len(words) == 1)
    for line in goldens.help_of([]).splitlines():
        assert len(line) <= 80
        assert "..." not in line or "ARGS" in line
    for name in grouped:
        [row] = re.findall(rf"^  {name} +(.*)$", goldens.help_of([]), re.MULTILINE)
        assert re.fullmatch(r"[A-Z].*\.", row), row


@pytest.mark.parametrize("words", goldens.commands(), ids=" ".join)
def test_every_help_has_a_summary_and_an_example(words: list[str]) -> None:
    shown = " ".join(goldens.help_of(words).split())
    example = re.search(rf"Example: trimaran {' '.join(words)}\b", shown)
    assert example, "an example that begins with the command itself"


def examples() -> list[str]:
    """Return the words after `trimaran` in the examples of the help texts of all commands."""
    groups = [group.typer_instance for group in cli.app.registered_groups]
    commands = [info for one in (cli.app, *groups) for info in one.registered_commands]  # type: ignore[union-attr]
    told = "\n".join([*(str(info.callback.__doc__) for info in commands),
                      *(str(one.info.help) for one in (cli.app, *groups))])  # type: ignore[union-attr]
    return re.findall(r"(?:^|Example:) +trimaran (.+)$", told, re.MULTILINE)


@pytest.mark.parametrize("line", examples())
def test_the_command_line_of_an_example_is_taken(line: str) -> None:
    assert commandlines.fault(line) is None


def test_the_version_is_said_with_the_revision_of_a_checkout(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(checkout.parent))
    done = CliRunner().invoke(cli.app, ["--version"])
    assert (done.exit_code, done.output) == (0, f"trimaran {__version__}\n")

    git = ["git", "-C", str(checkout), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    revision = head.stdout[:12]
    assert CliRunner().invoke(cli.app, ["--version"]).output == (
        f"trimaran {__version__} (git {revision})\n"
    )
    (checkout / "recipes/targets/cpu-2core.yaml").write_text("")
    assert CliRunner().invoke(cli.app, ["--version"]).output == (
        f"trimaran {__version__} (git {revision}, with uncommitted changes)\n"
    )


def test_help_answers_quickly() -> None:
    """The help must not import libraries that only the commands need."""
    code = "import sys; from trimaran import cli; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    heavy = {"rich", "pydantic", "matplotlib", "hpccm", "spython", "requests", "yaml", "jinja2"}
    assert heavy & set(done.stdout.split()) == set()
