"""A data set of small sequences, of which the future can be told from the past."""

from __future__ import annotations

from pathlib import Path

import pytest
from written_sequences import coloured, moving, pack


@pytest.fixture(scope="session")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grey frames of 16x16 pixels with a moving square: 3 x 16 to learn from, 2 x 8 held out."""
    folder = tmp_path_factory.mktemp("sequences") / "squares"
    return pack(folder, {
        "train": [moving(16, 16, seed) for seed in range(3)],
        "val": [moving(8, 16, seed) for seed in (7, 8)],
    })


@pytest.fixture(scope="session")
def colours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Coloured frames of 16x16 pixels: sequences of 17 and 14 to learn from, 13 and 11 held out."""
    return pack(tmp_path_factory.mktemp("colours") / "patches", {
        "train": [coloured(17, 16, 16, 1), coloured(14, 16, 16, 2)],
        "val": [coloured(13, 16, 16, 3), coloured(11, 16, 16, 4)],
    })
