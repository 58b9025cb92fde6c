"""Compare the packer's shards with the committed shards, which tests of the apps read with DALI.

The environment of the tool has no DALI, and the environments of the apps have no packer.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import goldens
from shards.kinds import ImageFormat


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes()
            for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", goldens.FORMATS)
def test_shards_are_the_committed_ones(name: ImageFormat, tmp_path: Path) -> None:
    goldens.pack(name, tmp_path / "out")
    made, golden = files(tmp_path / "out"), files(goldens.SHARDS / name)
    # The version of Pillow is in it; these images are passed on as they are.
    for one in (made, golden):
        del one["dataset.json"]
    assert made == golden, "run: make generate"
