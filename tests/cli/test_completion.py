"""Shell completion offers only names of the right kind, and never prints an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimaran import cli
from trimaran.inventory import catalog

RECIPE = "resnet-imagenet/cpu-quickstart"


def offered(line: str) -> list[str]:
    """Return the completions in bash for the last word of `line`."""
    words = line.split(" ")
    done = CliRunner().invoke(
        cli.app, [], prog_name="trimaran",
        env={
            "_TRIMARAN_COMPLETE": "complete_bash", "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    assert done.stderr == ""
    return done.output.split()


@pytest.mark.parametrize("kind", ["apps", "images", "targets", "recipes", "data"])
def test_show_completes_the_names_of_its_kind(kind: str) -> None:
    assert offered(f"trimaran show {kind} ") == catalog.names(kind)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("trimaran run resnet-imagenet/cpu-q", [RECIPE]),
        (f"trimaran run {RECIPE} --engine ", ["auto", "apptainer", "podman", "host"]),
        (f"trimaran run {RECIPE} --engine p", ["podman"]),
        ("trimaran show nonsense resnet", []),
        ("trimaran inspect torch-c --engine h", ["host"]),
        ("trimaran render torch-cp", ["torch-cpu", "torch-cpu-dev"]),
        ("trimaran data get fash", ["fashion-mnist"]),
        ("trimaran data verify fash", ["fashion-mnist"]),
        ("trimaran show recip", ["recipes"]),
    ],
)
def test_other_words_are_completed_too(line: str, found: list[str]) -> None:
    assert offered(line) == found


def test_nothing_is_offered_where_there_is_no_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_ROOT", str(tmp_path))
    assert offered("trimaran show recipes ") == []
