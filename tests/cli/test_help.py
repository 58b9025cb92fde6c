"""The help of every command, as one golden file; run as a script, it writes the file anew."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import commandlines
from trimaran import __version__, cli
from trimaran.cli.common import GROUPS

GOLDEN = Path(__file__).parents[1] / "golden/help.txt"


def commands() -> list[list[str]]:
    """Return the words of all commands: `[]`, `["run"]`, `["data", "get"]`, …"""
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


def test_the_first_screen_lists_each_command_once_with_a_whole_sentence() -> None:
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(words[0] for words in commands() if len(words) == 1)
    for line in ask([]).splitlines():
        assert len(line) <= 80
        assert "..." not in line or "ARGS" in line
    for name in grouped:
        [row] = re.findall(rf"^  {name} +(.*)$", ask([]), re.MULTILINE)
        assert re.fullmatch(r"[A-Z].*\.", row), row


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_help_has_a_summary_and_an_example(words: list[str]) -> None:
    shown = " ".join(ask(words).split())
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


if __name__ == "__main__":
    GOLDEN.write_text(text())
