"""The README is short, its table of results agrees with the evidence, and its links are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from generator import readme, sources
from showncommands import blocks
from trimaran import paths
from trimaran.errors import UsageError

TEXT = (paths.repository() / "README.md").read_text()


def test_the_table_of_results_is_that_of_evidence() -> None:
    assert readme.text(sources.read()) == TEXT, "run: make generate"


def test_a_table_without_its_place_is_refused(checkout: Path) -> None:
    (checkout / "README.md").write_text("# A\n")
    with pytest.raises(UsageError, match=r"README\.md: the lines .* are missing"):
        readme.text(sources.Sources(None, {}, [], {}, None))  # type: ignore[arg-type]


def test_it_is_short_and_has_picture_commands_table_screenshot_and_links() -> None:
    assert len(TEXT.splitlines()) < 100
    commands = re.findall(r"^```sh\n(.*?)\n```$", TEXT, re.MULTILINE)
    assert commands == ["make quickstart", "make test"]
    assert "site/docs/way.svg" in TEXT
    assert "screenshots/recipe-light.png" in TEXT


def test_its_run_on_a_cluster_is_that_of_the_tutorial_which_is_executed() -> None:
    [shown] = re.findall(r"^```console\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    first = next(block for block in blocks("tutorials/cluster.md") if block.how == "real")
    assert re.findall(r"^\$ (.*)$", shown, re.MULTILINE) == first.text.splitlines()


def test_its_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (paths.repository() / link.partition("#")[0]).exists(), link
