"""Images with any number of classes, and sequences of frames: listed, packed and verified."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from photos import jpeg, png
from refusals import refused
from shards.description import Dataset
from shards.kinds import ImageFormat
from trimaran import cli
from trimaran.data import dataset_json
from trimaran.data.packing import image_folders, packer
from trimaran.data.packing.listing import Listing
from trimaran.data.packing.plan import Options
from trimaran.reporting import Silent

FORMATS: tuple[ImageFormat, ...] = ("webdataset", "tfrecord", "hdf5")
TABLE = "file,classes\ntrain/a.jpg,mass|edema\ntrain/b.jpg,\nval/c.jpg,mass\n"


@pytest.fixture
def xrays(tmp_path: Path) -> Path:
    root = tmp_path / "xrays"
    for number, name in enumerate(("train/a.jpg", "train/b.jpg", "val/c.jpg")):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(jpeg(number))
    (root / "labels.csv").write_text(TABLE)
    return root


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    root = tmp_path / "clips"
    for split, frames in (("train", 12), ("val", 3)):
        folder = root / split / "street"
        folder.mkdir(parents=True)
        for number in range(frames):
            (folder / f"frame-{number}.png").write_bytes(png(number))
    return root


class Told(Silent):
    """A reporter that keeps the warnings in a list, so that tests can read them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def warn(self, text: str) -> None:
        self.lines.append(text)


def listed(
    root: Path, out: Path, labels: Path | None = None, *, sequences: bool = False,
    reporter: Silent | None = None, **more: Any,
) -> Listing:
    return image_folders.listing_of(
        root, out, labels=labels, in_sequences=sequences, untrained=False, workers=1,
        reporter=reporter or Silent(), **more,
    )


def pack(found: Listing, out: Path, form: ImageFormat, **options: int) -> Dataset:
    return packer.pack(
        found, out, Options("some", form, **options), workers=1, skip_bad=False, reporter=Silent()
    )


def faults(folder: Path) -> list[str]:
    return dataset_json.verify_folder(None, folder, records=True, reporter=Silent(), workers=1)


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_names_the_classes_of_each_image(
    form: ImageFormat, xrays: Path, tmp_path: Path
) -> None:
    found = listed(xrays, tmp_path / "out", xrays / "labels.csv")
    assert found.classes == ["edema", "mass"]
    assert [one.labels for one in found.splits["train"]] == [(0, 1), ()]
    packed = pack(found, tmp_path / "out", form)
    assert (packed.labels, packed.sample, packed.classes) == ("multi", "image", ["edema", "mass"])
    document = json.loads((tmp_path / "out/dataset.json").read_text())
    assert document["labels"] == "multi"
    assert "sample" not in document, "what is at its default is not written"
    assert faults(tmp_path / "out") == []


@pytest.mark.parametrize("form", FORMATS)
def test_a_folder_of_frames_is_one_sample_in_the_order_of_their_numbers(
    form: ImageFormat, clips: Path, tmp_path: Path
) -> None:
    found = listed(clips, tmp_path / "out", sequences=True)
    (sample,) = found.splits["train"]
    assert sample.frames == tuple(f"frame-{number}.png" for number in range(12))
    packed = pack(found, tmp_path / "out", form)
    assert (packed.labels, packed.sample, packed.classes) == ("none", "sequence", [])
    assert {name: split.samples for name, split in packed.splits.items()} == {"train": 1, "val": 1}
    assert faults(tmp_path / "out") == []


def test_frames_are_scaled_all_alike(clips: Path, tmp_path: Path) -> None:
    pack(listed(clips, tmp_path / "out", sequences=True), tmp_path / "out", "tfrecord", resize=8)
    assert faults(tmp_path / "out") == []


def test_frames_of_another_size_or_cut_off_are_named(clips: Path, tmp_path: Path) -> None:
    folder = clips / "train/street"
    (folder / "frame-2.png").write_bytes(png(2, (9, 5)))
    with refused("image-undecodable", "train/street frame 2", "9x5 pixels"):
        pack(listed(clips, tmp_path / "a", sequences=True), tmp_path / "a", "webdataset")
    (folder / "frame-2.png").write_bytes(png(2)[: len(png(2)) // 2])
    with refused("image-undecodable", "train/street frame 2 cannot"):
        pack(listed(clips, tmp_path / "b", sequences=True), tmp_path / "b", "webdataset")


@pytest.mark.parametrize(
    ("text", "code", "fault"),
    [
        ("name,labels\n", "table-invalid", "file and classes"),
        ("file,classes\n", "table-invalid", "labels.csv"),
        ("file,classes\na.jpg,mass\n", "table-invalid", ":2: 'a.jpg'"),
        ("file,classes\ntrain/../../x.jpg,mass\n", "table-invalid", ":2: 'train/../../x.jpg'"),
        ("file,classes\ntrain/a.txt,mass\n", "table-invalid", ":2: 'train/a.txt'"),
        ("file,classes\ntrain/z.jpg,mass\n", "images-missing", "labels.csv:2: train/z.jpg"),
        ("file,classes,patient\ntrain/a.jpg,,\n", "table-invalid", ":2: train/a.jpg"),
        ("file,classes,patient\ntrain/b.jpg,,7\nval/c.jpg,,8\ntrain/a.jpg,,8\n",
         "patient-shared",
         ":4: the patient '8' is in two splits: train/a.jpg, and val/c.jpg in line 3"),
        ("file,classes\ntrain/a.jpg,\ntrain/a.jpg,\n", "table-invalid",
         ":3: train/a.jpg is listed twice, first in line 2"),
        ('file,classes\n"train/a.jpg,\n', "table-invalid", "labels.csv:2"),
        ("file,classes\nval/c.jpg,mass\n", "split-missing", "val"),
    ],
)
def test_a_faulty_table_is_one_error_with_its_line(
    text: str, code: str, fault: str, xrays: Path, tmp_path: Path
) -> None:
    (xrays / "labels.csv").write_text(text)
    with refused(code, fault):
        listed(xrays, tmp_path / "out", xrays / "labels.csv")


def test_images_that_the_table_does_not_name_are_told(xrays: Path, tmp_path: Path) -> None:
    (xrays / "train/more.jpg").write_bytes(jpeg(9))
    told = Told()
    listed(xrays, tmp_path / "out", xrays / "labels.csv", reporter=told)
    assert "1 images are left out, because the table does not list them" in told.lines[0]
    assert "train/more.jpg" in told.lines[0]


def test_missing_images_are_listed_and_counted_and_can_be_left_out(
    xrays: Path, tmp_path: Path
) -> None:
    more = [f"train/{number:02}.jpg,mass\n" for number in range(12)]
    (xrays / "labels.csv").write_text(TABLE + "".join(more))
    with refused("images-missing", xrays, "12 of 15") as caught:
        listed(xrays, tmp_path / "out", xrays / "labels.csv")
    lines = caught.value.message.splitlines()
    assert lines[1] == f"{xrays}/labels.csv:5: train/00.jpg"
    assert lines[10].endswith(":14: train/09.jpg")
    assert lines[11] == "and 2 more"
    told = Told()
    found = listed(
        xrays, tmp_path / "out", xrays / "labels.csv", reporter=told, skip_missing=True
    )
    assert told.lines == ["12 of 15 images are missing and are left out"]
    assert {name: len(split) for name, split in found.splits.items()} == {"train": 2, "val": 1}


def test_a_data_set_of_which_nothing_is_there_is_refused_anyway(
    xrays: Path, tmp_path: Path
) -> None:
    (xrays / "labels.csv").write_text("file,classes\ntrain/z.jpg,mass\n")
    with refused("images-missing", xrays, "1 of 1"):
        listed(xrays, tmp_path / "out", xrays / "labels.csv", skip_missing=True)


def test_classes_that_are_named_keep_their_order_and_others_are_refused(
    xrays: Path, tmp_path: Path
) -> None:
    table = xrays / "labels.csv"
    found = listed(xrays, tmp_path / "out", table, classes=["mass", "nodule", "edema"])
    assert found.classes == ["mass", "nodule", "edema"]
    assert [one.labels for one in found.splits["train"]] == [(0, 2), ()]
    table.write_text(TABLE.replace("val/c.jpg,mass", "val/c.jpg,masss"))
    with refused("class-unknown", "labels.csv:4:", "'masss'") as caught:
        listed(xrays, tmp_path / "out", table, classes=["mass", "edema"])
    assert (caught.value.hint or "").startswith("did you mean mass")


def test_the_command_takes_the_names_of_classes(xrays: Path, tmp_path: Path) -> None:
    words = ["data", "pack", str(xrays), "-o", str(tmp_path / "out"), "--format", "tfrecord",
             "--labels", str(xrays / "labels.csv"), "--workers", "1", "--classes"]
    for wrong in ("mass|mass", "mass|", ""):
        error = CliRunner().invoke(cli.app, [*words, wrong]).exception
        assert getattr(error, "code", None) == "argument-invalid"
    done = CliRunner().invoke(cli.app, [*words, "mass|edema|nodule"])
    assert done.exit_code == 0, done.output
    assert dataset_json.read(tmp_path / "out").classes == ["mass", "edema", "nodule"]
    with refused("arguments-conflict", "--classes", "--labels"):
        listed(xrays, tmp_path / "other", classes=["mass"])


def test_a_folder_without_frames_and_both_ways_at_once_are_refused(
    clips: Path, tmp_path: Path
) -> None:
    with refused("arguments-conflict", "--labels", "--sequences"):
        listed(clips, tmp_path / "out", clips / "labels.csv", sequences=True)
    (clips / "train/empty").mkdir()
    with refused("layout-invalid", "train/empty"):
        listed(clips, tmp_path / "out", sequences=True)


@pytest.mark.parametrize("form", ["recordio", "lmdb"])
def test_a_format_that_cannot_hold_them_is_refused_before_anything_is_written(
    form: ImageFormat, clips: Path, tmp_path: Path
) -> None:
    with refused("format-unsuitable", form):
        pack(listed(clips, tmp_path / "out", sequences=True), tmp_path / "out", form)
    assert not (tmp_path / "out").exists()


def test_labels_outside_of_the_classes_are_found_by_verify(xrays: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pack(listed(xrays, out, xrays / "labels.csv"), out, "tfrecord")
    document = json.loads((out / "dataset.json").read_text())
    (out / "dataset.json").write_text(json.dumps(document | {"classes": ["edema"]}))
    assert any("has no class from 0 to 0" in fault for fault in faults(out))
