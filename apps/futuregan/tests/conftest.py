"""Fixtures: packed data sets of small sequences of frames."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_sequences import coloured, moving, pack


@pytest.fixture(scope="session")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of grey frames of 16x16 pixels with a moving square.

    It has 3 training sequences of 16 frames, and 2 validation sequences of 8 frames.
    """
    folder = tmp_path_factory.mktemp("sequences") / "squares"
    return pack(folder, {
        "train": [moving(16, 16, seed) for seed in range(3)],
        "val": [moving(8, 16, seed) for seed in (7, 8)],
    })


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a data set of coloured frames of 16x16 pixels.

    Its training sequences have 17 and 14 frames, its validation sequences 13 and 11 frames.
    """
    return pack(tmp_path_factory.mktemp("colours") / "patches", {
        "train": [coloured(17, 16, 16, 1), coloured(14, 16, 16, 2)],
        "val": [coloured(13, 16, 16, 3), coloured(11, 16, 16, 4)],
    })
