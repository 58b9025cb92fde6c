"""Execute the commands that the documentation shows, without changes."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from trimaran import paths

ROOT = paths.repository()


def blocks(document: str) -> list[str]:
    """Return the shell blocks of a document, in order."""
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / document).read_text(), re.M | re.S)


README = blocks("README.md")


# `make test` is what runs this test, so it is the one block that is not run here.
@pytest.mark.trains
@pytest.mark.alone
@pytest.mark.engine("apptainer")
@pytest.mark.usefixtures("user_cache")
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("block", [b for b in README if b.strip() != "make test"])
def test_block_of_the_readme_runs(block: str) -> None:
    runs = ROOT / "runs"
    before = set(runs.glob("*/*/*"))
    done = subprocess.run(
        ["sh", "-e"], input=block, text=True, capture_output=True, cwd=ROOT, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if block.strip() == "make quickstart":
        assert "VERDICT PASS" in done.stdout
        made = set(runs.glob("*/*/*")) - before
        assert len(made) == 1
