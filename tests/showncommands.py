"""Extract and execute the blocks of commands on the hand-written pages of the site."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from trimaran import paths

ROOT = paths.repository()
DOCS = ROOT / "site/docs"
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
WAYS = ("executed", "real", "small")

_BLOCK = re.compile(
    r"(?P<marks>(?:^<!-- [a-z]+(?:: [a-z -]+)? -->\n)*)^```sh[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_COPIED = re.compile(r"^( *)```sh[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- ([a-z]+)(?:: ([a-z -]+))? -->")
_IN_CLONE = ("make ", ".venv/")


class Block(NamedTuple):
    """A block of commands on a page, and how the tests execute it.

    Attributes:
        how: `executed` (without an engine), `real` (with the engines in `needs`), or `small` (with
            Apptainer and Slurm, and a small app in place of the real app).
        given: functions of `given.py` that create what the page requires.
    """

    how: str
    needs: tuple[str, ...]
    given: tuple[str, ...]
    text: str


def blocks(page: str, text: str | None = None) -> Iterator[Block]:
    """Yield the code blocks of a page in order; `page` is its path in `site/docs`."""
    for found in _BLOCK.finditer((DOCS / page).read_text() if text is None else text):
        marks = {name: tuple(words.split()) for name, words in _MARK.findall(found["marks"])}
        given = marks.pop("given", ())
        (how, needs), *more = marks.items() or [("executed", ())]
        if how not in WAYS or more:
            raise ValueError(f"{page}: a block cannot be {' and '.join(marks)}")
        yield Block(how, needs, given, found["text"])


def copied(text: str) -> list[str]:
    """Return the blocks of shell commands in the text of a generated page, also those in tabs."""
    return [textwrap.dedent(block).strip() for _, block in _COPIED.findall(text)]


def tried(shown: Iterable[Block], place: Path, **variables: str) -> None:
    """Execute the blocks in one shell, as a reader does; the first failure ends the shell.

    Blocks that use make or the clone's `.venv` run in the clone, all others in `place`.
    """
    script = []
    for block in shown:
        for name in block.given:  # an assignment, because `eval` alone would ignore a failure
            script += [f"told=$({shlex.quote(sys.executable)} -m given {name})", 'eval "$told"']
        folder = ROOT if block.text.startswith(_IN_CLONE) else place
        script += [f"cd {shlex.quote(str(folder))}", block.text]
    environment = {
        **os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]),
        "XDG_CONFIG_HOME": str(place.parent / "config"),  # folder of the site file
        "CLONE": str(ROOT), "COLUMNS": "100", **variables,
    }
    done = subprocess.run(
        ["sh", "-e", "-x", "-c", "\n".join(script)], cwd=place, env=environment, text=True,
        stdin=subprocess.DEVNULL, capture_output=True, check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "# first: --data" not in done.stdout, done.stdout  # --dry-run ignores missing data
