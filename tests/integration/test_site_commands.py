"""The commands in the pages of the site that take an engine, executed in their order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from showncommands import DOCS, Block, blocks
from trimaran import paths

ROOT = paths.repository()
QUICKSTART = "make quickstart"
"""What `test_readme.py` runs, since the README shows it, too."""
LONG = {"guides/strategies.md", "tutorials/own-recipe.md"}
"""Pages whose commands are several whole trainings."""


def real(page: str) -> list[Block]:
    return [block for block in blocks(page)
            if block.how == "real" and block.text.strip() != QUICKSTART]


PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
REAL = {page: found for page in PAGES if (found := real(page))}


def page_of(name: str, found: list[Block]) -> object:
    engines = sorted({need for block in found for need in block.needs})
    marks = [pytest.mark.engine(engine) for engine in engines]
    return pytest.param(name, marks=[*marks, pytest.mark.long] if name in LONG else marks)


@pytest.mark.trains
@pytest.mark.alone
@pytest.mark.usefixtures("user_cache")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", [page_of(name, found) for name, found in REAL.items()])
def test_the_commands_of_a_page_run(page: str, own_place: Path) -> None:
    """Those that use make or the clone's own program run in the clone, others in an empty folder.

    Commands before them that need no engine are what they stand on, and run, too.
    """
    shown = list(blocks(page))
    last = max(place for place, block in enumerate(shown) if block in REAL[page])
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "CLONE": str(ROOT), "COLUMNS": "100",
    }
    for block in shown[: last + 1]:
        if block.how == "parsed" or block.text.strip() == QUICKSTART:
            continue
        in_clone = block.text.startswith(("make ", ".venv/"))
        done = subprocess.run(
            ["sh", "-e"], input=block.text, text=True, cwd=ROOT if in_clone else own_place,
            env=environment, capture_output=True, check=False,
        )
        if "make cluster" in block.text:
            subprocess.run(["make", "cluster-stop"], cwd=ROOT, check=True, capture_output=True)
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"


def test_pages_with_such_commands_were_found() -> None:
    assert LONG | {"tutorials/cluster.md", "tutorials/air-gapped.md"} <= set(REAL)
