"""The commands that the pages show: executed in their order, or, where they need an engine, parsed.

In a page by hand, a block `sh` is executed here. `<!-- real: ENGINES -->` in front of it leaves it
to `tests/integration/test_site_commands.py`, `<!-- parsed -->` asks only that its commands exist.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commandlines import fault, lines
from showncommands import DOCS, blocks
from trimaran import paths

ROOT = paths.repository()
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
DOCUMENTS = sorted(
    str(path.relative_to(ROOT)) for path in
    [*ROOT.glob("*.md"), *ROOT.glob("apps/**/README.md"), *ROOT.glob("containers/*.md"),
     ROOT / "recipes/README.md", ROOT / "benchmarks/README.md"]
)


@pytest.mark.parametrize("page", [page for page in PAGES if any(
    block.how == "executed" for block in blocks(page))])
def test_the_commands_of_a_page_run(page: str, own_place: Path) -> None:
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CLONE": str(ROOT), "COLUMNS": "100",
    }
    for block in blocks(page):
        if block.how == "executed":
            done = subprocess.run(
                ["sh", "-e"], input=block.text, text=True, cwd=own_place, env=environment,
                capture_output=True, check=False,
            )
            assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_that_are_not_run_exist(page: str) -> None:
    for block in blocks(page):
        for line in lines(block.text):
            assert fault(line) is None, f"trimaran {line}: {fault(line)}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_exist(document: str) -> None:
    text = (ROOT / document).read_text()
    shown = "\n".join(re.findall(r"^(?:    |\t)(.*)$", text, re.MULTILINE))
    shown += "\n".join(re.findall(r"^```sh.*?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    for line in lines(shown):
        assert fault(line) is None, f"{document}: trimaran {line}: {fault(line)}"


def test_each_way_of_trying_is_used_and_known() -> None:
    ways = {block.how for page in PAGES for block in blocks(page)}
    assert ways == {"executed", "real", "parsed"}
    with pytest.raises(ValueError, match="tried"):
        next(iter(blocks("x.md", "<!-- tried -->\n```sh\ntrue\n```\n")))


def test_a_command_that_is_not_there_is_found() -> None:
    assert fault("run x --engien host") is not None
    assert fault("biuld torch-cpu") is not None
    (line,) = lines("A=$(trimaran build torch-cpu --engine podman)")
    assert fault(line) is None
