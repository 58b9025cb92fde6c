"""The packer makes the very shards that the apps' tests read with DALI; as a script, makes them.

The tool has no DALI, the apps have no packer: the shards are committed between the two.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args

import pytest

from shards.kinds import FormatName
from trimaran.data.packing import class_folders, packer
from trimaran.data.packing.plan import Options
from trimaran.reporting import Silent

GOLDEN = Path(__file__).parents[2] / "apps/resnet-imagenet/tests/data"
FORMATS: tuple[FormatName, ...] = get_args(FormatName)


def pack(name: FormatName, out: Path) -> None:
    found = class_folders.listing(GOLDEN / "photos", 1, Silent())
    packer.pack(
        found, out, Options("photos", name, samples=4), workers=1, skip_bad=False,
        reporter=Silent(),
    )


def files(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes()
            for path in sorted(place.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", FORMATS)
def test_shards_are_the_committed_ones(name: FormatName, tmp_path: Path) -> None:
    pack(name, tmp_path / "out")
    made, golden = files(tmp_path / "out"), files(GOLDEN / "packed" / name)
    # The version of Pillow is in it; these images are passed on as they are.
    for one in (made, golden):
        del one["dataset.json"]
    assert made == golden, "run: make generate"


if __name__ == "__main__":
    shutil.rmtree(GOLDEN / "packed", ignore_errors=True)
    for form in FORMATS:
        pack(form, GOLDEN / "packed" / form)
