"""Tests that a plain folder of images gives the same samples as a packed data set."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from oddpictures import BAD, GOOD, OTHERS, different
from shards import picturefile
from trainkit.data.bad import UndecodableError
from trainkit.data.dataset import open_dataset
from trainkit.testing.refusals import refused


def test_a_folder_gives_files_that_every_decoder_reads(tmp_path: Path) -> None:
    cases = [*GOOD.values(), *(case for case in OTHERS.values() if case.pixels is not None)]
    place = tmp_path / "train/cat"
    place.mkdir(parents=True)
    for at, case in enumerate(cases):
        (place / f"{at:03}.png").write_bytes(case.content)
    (tmp_path / "val").mkdir()
    records = open_dataset(tmp_path).records("train")
    for at, case in enumerate(cases):
        content = records.encoded(at).tobytes()
        assert picturefile.facts(content).plain
        assert not different(np.asarray(picturefile.picture(content)), case)


def test_an_undecodable_file_of_a_folder_is_named(tmp_path: Path) -> None:
    place = tmp_path / "train/cat"
    place.mkdir(parents=True)
    (place / "dark.png").write_bytes(BAD["png of 12 bits in 16"].content)
    (tmp_path / "val").mkdir()
    records = open_dataset(tmp_path).records("train")
    with refused(UndecodableError, "image-undecodable", place / "dark.png", "16 bits"):
        records.encoded(0)
