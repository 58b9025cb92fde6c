"""Pictures of every kind: packed so that every app sees the same pixels, or refused by an error."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import oddpictures
from oddpictures import BAD, CASES, GOOD, OTHERS, Case
from packings import faults, pack
from shards import formats, picturefile
from shards.description import PackedSplit
from shards.formats.records import Record
from shards.kinds import Kind
from trimaran import cli, paths
from trimaran.data import dataset_json
from trimaran.data.packing import pictures


def pixels(content: bytes) -> np.ndarray:
    """Return the pixels of a picture as they are stored, without applying EXIF orientation."""
    with Image.open(io.BytesIO(content)) as image:
        return np.asarray(image)


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD)
def test_a_good_picture_is_packed_as_every_decoder_reads_it(case: Case) -> None:
    found = pictures.checked(case.content)
    assert (found == case.content) == case.plain
    assert picturefile.facts(found).plain
    assert pictures.encoding(found) == pictures.encoding(case.content)
    assert not oddpictures.different(np.asarray(picturefile.picture(case.content)), case)
    if not case.plain:
        assert not oddpictures.different(pixels(found), case)
    assert pictures.verified(found) == found


@pytest.mark.parametrize("case", GOOD.values(), ids=GOOD)
def test_a_scaled_picture_is_upright_and_has_no_tag(case: Case) -> None:
    assert case.pixels is not None
    height, width = case.pixels.shape[:2]
    for to, size in ((24, (width, height)), (12, (width // 2, height // 2)), ((20, 10), (20, 10))):
        found = pictures.scaled(case.content, to, 95)
        assert picturefile.facts(found).plain
        assert pixels(found).shape[1::-1] == size
        if to == 24:
            assert not oddpictures.different(pixels(found), case._replace(near=24))


@pytest.mark.parametrize("case", BAD.values(), ids=BAD)
def test_a_bad_picture_is_refused_by_name(case: Case) -> None:
    for work in (pictures.checked, pictures.verified, lambda one: pictures.scaled(one, 8, 95)):
        with pytest.raises(pictures.BadImage, match=case.says):
            work(case.content)


@pytest.mark.parametrize("case", OTHERS.values(), ids=OTHERS)
def test_other_formats_are_not_packed(case: Case) -> None:
    with pytest.raises(pictures.BadImage, match="not a JPEG, PNG or DICOM"):
        pictures.checked(case.content)


def test_packed_data_have_no_tags_and_bad_files_are_skipped(tmp_path: Path) -> None:
    folder = tmp_path / "photos/train/cat"
    folder.mkdir(parents=True)
    for at, case in enumerate(CASES.values()):
        (folder / f"{at}.jpg").write_bytes(case.content)
    words = ["data", "pack", str(tmp_path / "photos"), "-o", str(tmp_path / "out"), "--workers",
             "1", "--no-train"]
    done = CliRunner().invoke(cli.app, [*words, "--skip-bad"])
    assert done.exit_code == 0, done.output
    anew = sum(not case.plain for case in GOOD.values())
    assert f"{anew} images were re-encoded" in " ".join(done.output.split())
    found = dataset_json.read(tmp_path / "out")
    assert (found.splits["train"].samples, found.origin.skipped) == (len(GOOD), len(BAD))
    assert found.origin.quality == 95
    assert faults(tmp_path / "out") == []


@pytest.mark.parametrize(("name", "says"), [
    ("jpeg orientation 6", "EXIF gives it the orientation 6; pack it again"),
    ("jpeg EXIF twice, upright", "EXIF gives it several orientations; pack it again"),
    ("jpeg CMYK", "it is a JPEG file with CMYK or arithmetic coding; pack it again"),
    ("png without IEND", "a truncated PNG file, whose last chunk IEND is missing"),
])
def test_packed_data_that_not_all_apps_read_are_found(
    name: str, says: str, tmp_path: Path
) -> None:
    folder = tmp_path / "photos/train/cat"
    folder.mkdir(parents=True)
    (folder / "1.png").write_bytes(oddpictures.png())
    pack(tmp_path / "photos", tmp_path / "out")
    records = [Record(0, "train/cat/1.jpg", (0,), (CASES[name].content,), "jpg")]
    new = formats.write_shard("webdataset", tmp_path / "out", "train-00000", Kind(), records)
    dataset = dataset_json.read(tmp_path / "out")
    splits = dataset.splits | {"train": PackedSplit.of([new])}
    image = replace(dataset.image, encoding="jpg")
    dataset_json.write(tmp_path / "out", replace(dataset, splits=splits, image=image))
    assert any(says in one for one in faults(tmp_path / "out")), faults(tmp_path / "out")


def test_pictures_are_converted_in_one_place() -> None:
    root = paths.repository()
    sources = [*root.glob("src/trimaran/data/**/*.py"), *root.glob("apps/*/src/**/*.py")]
    found = {path.name for path in sources
             if re.search(r"""\.convert\(["'(]""", path.read_text()) or "exif_transpose" in
             path.read_text()}
    assert found == {"picturefile.py", "pictures.py"}  # the latter draws what the app shows
