"""DICOM files of every kind give the expected pixels, or an error that names the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from oddxrays import BAD, CASES, GOOD, Case
from shards import dicom
from trimaran import cli
from trimaran.data import dataset_json
from trimaran.data.packing import pictures


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD)
def test_a_grey_image_is_shown_as_it_says(case: Case) -> None:
    found = np.asarray(dicom.picture(case.content), int)
    assert found.shape == case.pixels.shape
    assert np.abs(found - case.pixels).max() <= 1
    assert pictures.scaled(case.content, 8, 95).startswith(b"\xff\xd8")


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_what_cannot_be_shown_is_named(case: Case) -> None:
    with pytest.raises(pictures.BadImage, match=case.says):
        pictures.scaled(case.content, 8, 95)


def test_bad_ones_are_skipped_and_the_others_packed(tmp_path: Path) -> None:
    folder = tmp_path / "photos/train/chest"
    folder.mkdir(parents=True)
    for at, case in enumerate(CASES.values()):
        (folder / f"{at}.dcm").write_bytes(case.content)
    words = ["data", "pack", str(tmp_path / "photos"), "-o", str(tmp_path / "out"), "--workers",
             "1", "--resize", "16x12"]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 1
    assert str(done.exception).count("cannot be decoded") == len(BAD)
    words[4] = str(tmp_path / "new")
    done = CliRunner().invoke(cli.app, [*words, "--skip-bad"])
    assert done.exit_code == 0, done.output
    found = dataset_json.read(tmp_path / "new")
    assert (found.splits["train"].samples, found.origin.skipped) == (len(GOOD), len(BAD))
