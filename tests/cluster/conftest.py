"""Define the fixture `place`: a run directory with a Slurm job, and fake programs on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobplaces import Place, make


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Create a run directory with a Slurm job, and return it with its stand-ins for commands."""
    return make(tmp_path / "a place")
