"""Files besides the samples of a source: every file is counted and named, or refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import photos
from refusals import refused
from trimaran import cli
from trimaran.data import dataset_json
from trimaran.data.packing import image_folders, packer
from trimaran.data.packing.listing import Listing
from trimaran.data.packing.plan import Options
from trimaran.reporting import Silent

ENDINGS = (
    "flv", "wmv", "ts", "3gp", "mts", "m2ts", "asf", "gif", "part", "ogv", "vob", "zip", "tar",
    "tar.gz", "7z", "rar", "webp", "tif", "bmp", "heic", "npy", "txt", "crdownload",
)
NAMES = (*(f"odd.{ending}" for ending in ENDINGS), "ODD.FLV", "without-ending", ".hidden.jpg")
PLACES = {"class folders": "train/cat", "sequences": "train/street", "labels": "train/cat"}


@pytest.fixture(params=PLACES)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def source(layout: str, tmp_path: Path) -> Path:
    """Return a source with three training images and one validation image."""
    root = tmp_path / "source"
    for split, count in (("train", 3), ("val", 1)):
        folder = root / split / Path(PLACES[layout]).name
        folder.mkdir(parents=True)
        for number in range(count):
            (folder / f"{number}.jpg").write_bytes(photos.jpeg(number))
    if layout == "labels":
        names = sorted(str(path.relative_to(root)) for path in root.rglob("*.jpg"))
        (root / "labels.csv").write_text("".join(f"{one},\n" for one in ["file,classes", *names])
                                         .replace("classes,", "classes"))
    return root


def listed(source: Path, layout: str, told: Silent | None = None) -> Listing:
    return image_folders.listing_of(
        source, source.parent / "out", untrained=False, workers=1, reporter=told or Silent(),
        labels=source / "labels.csv" if layout == "labels" else None,
        in_sequences=layout == "sequences",
    )


def count(found: Listing) -> int:
    return sum(len(one.frames) or 1 for of in found.splits.values() for one in of)


def pack(found: Listing, out: Path, told: Silent | None = None, *, skip_bad: bool = False) -> None:
    packer.pack(found, out, Options("some", "webdataset"), workers=1, skip_bad=skip_bad,
                reporter=told or Silent())


@pytest.mark.parametrize("place", ["", "train/", "val/", "other/", "train/FOLDER/"])
def test_every_file_that_is_no_image_is_counted_and_named(
    place: str, source: Path, layout: str
) -> None:
    place = place.replace("train/FOLDER", PLACES[layout])
    (source / place).mkdir(exist_ok=True)
    for name in NAMES:
        (source / place / name).write_bytes(b"x")
    told = Silent()
    found = listed(source, layout, told)
    assert found.ignored == sorted(place + name for name in NAMES)
    assert (count(found), told.warnings) == (4, [])
    pack(found, source.parent / "out", told)
    (line,) = told.warnings
    assert f"{len(NAMES)} files that are not images are left out; the first is {place}" in line
    assert line.endswith(f" and {len(NAMES) - 10} more")
    assert all(name in line for name in found.ignored[:10])


@pytest.mark.parametrize("place", ["", "train/", "other/"])
def test_loose_images_are_counted_and_named(place: str, source: Path, layout: str) -> None:
    (source / place).mkdir(exist_ok=True)
    for name in ("a.JPG", "b.png", "c.dcm"):
        (source / place / name).write_bytes(photos.jpeg(1))
    told = Silent()
    assert count(listed(source, layout, told)) == 4
    (line,) = told.warnings
    assert "3 images are left out, because" in line
    assert "a.JPG" in line


def test_pipes_and_hidden_folders_are_named_and_not_gone_into(source: Path, layout: str) -> None:
    os.mkfifo(source / "train/pipe.mp4")
    os.mkfifo(source / f"{PLACES[layout]}/pipe.avi")
    (source / ".git").mkdir()
    (source / ".empty").mkdir()
    (source / ".git/0.jpg").write_bytes(photos.jpeg(1))
    found = listed(source, layout)
    assert found.ignored == sorted([".git/", f"{PLACES[layout]}/pipe.avi", "train/pipe.mp4"])


@pytest.mark.parametrize("layout", ["labels"], indirect=True)
def test_links_beside_what_a_table_names_are_named_and_not_gone_into(
    source: Path, layout: str
) -> None:
    (source / "other").mkdir()
    (source / "other/loop").symlink_to("loop")
    (source / "other/gone").symlink_to("/nowhere")
    (source / "other/up").symlink_to(source)
    assert listed(source, layout).ignored == ["other/gone", "other/loop", "other/up/"]


def test_a_split_that_is_a_link_is_gone_into(source: Path, layout: str) -> None:
    (source / "val").rename(source.parent / "elsewhere")
    (source / "val").symlink_to(source.parent / "elsewhere")
    (source / "val/notes.txt").write_text("x")
    found = listed(source, layout)
    assert (count(found), found.ignored) == (4, ["val/notes.txt"])


@pytest.mark.parametrize("layout", ["class folders", "sequences"], indirect=True)
def test_images_too_deep_and_broken_links_are_refused(source: Path, layout: str) -> None:
    folder = source / PLACES[layout]
    (folder / "deeper").mkdir()
    (folder / "deeper/0.jpg").write_bytes(photos.jpeg(1))
    (folder / "1.jpg").unlink()
    (folder / "1.jpg").symlink_to("/nowhere")
    with refused("images-misplaced") as caught:
        listed(source, layout)
    assert sorted(caught.value.message.splitlines()) == [
        f"{folder}/1.jpg is a broken link",
        f"{folder}/deeper/0.jpg: 1 images are too deep in the folder",
    ]
    shutil.rmtree(folder / "deeper")
    (folder / "1.jpg").unlink()
    (source / "train/gone.mp4").symlink_to("/nowhere")
    with refused("images-misplaced", "train/gone.mp4"):
        listed(source, layout)


def test_the_command_names_what_it_leaves_out(source: Path, layout: str) -> None:
    odd = b"odd\xff.flv"
    for name in (b"street.flv", odd):
        Path(os.fsdecode(os.fsencode(source / "train") + b"/" + name)).write_bytes(b"x")
    words = {"class folders": [], "sequences": ["--sequences"],
             "labels": ["--labels", str(source / "labels.csv")]}[layout]
    done = CliRunner().invoke(cli.app, [
        "data", "pack", str(source), "-o", str(source.parent / "out"), "--workers", "1", *words,
    ])
    assert done.exit_code == 0, done.output
    assert "2 files that are not images are left out" in done.stderr
    assert "train/street.flv" in "".join(done.stderr.split("\n"))


TRAINED = "file,classes\ntrain/cat/0.jpg,cat\n"


@pytest.mark.parametrize("layout", ["class folders"], indirect=True)
@pytest.mark.parametrize("left", [(), ("readme.txt",), ("dog.zip",), (".0.jpg",)])
def test_a_class_without_images_in_train_is_refused(
    left: tuple[str, ...], source: Path, layout: str
) -> None:
    for split in ("train", "val"):
        (source / split / "dog").mkdir()
    (source / "val/dog/0.jpg").write_bytes(photos.jpeg(5))
    for name in left:
        (source / "train/dog" / name).write_bytes(photos.jpeg(6))
    with refused("class-empty", source / "train/dog"):
        listed(source, layout)


@pytest.mark.parametrize("layout", ["labels"], indirect=True)
def test_a_class_that_no_image_of_train_has_is_refused_unless_it_is_named(
    source: Path, layout: str
) -> None:
    (source / "labels.csv").write_text(TRAINED + "val/cat/0.jpg,dog\n")
    with refused("class-empty", "csv:3:", "'dog'", "val/cat/0.jpg"):
        listed(source, layout)
    told = Silent()
    found = image_folders.listing_of(
        source, source.parent / "out", labels=source / "labels.csv", in_sequences=False,
        untrained=False, workers=1, reporter=told, classes=["cat", "dog", "eel"],
    )
    assert found.classes == ["cat", "dog", "eel"]
    assert any("train has no images of dog, but other" in line for line in told.warnings)


@pytest.mark.parametrize("layout", ["labels"], indirect=True)
def test_a_class_whose_images_in_train_are_missing_is_refused(source: Path, layout: str) -> None:
    table = source / "labels.csv"
    table.write_text(TRAINED + "train/cat/9.jpg,dog\nval/cat/0.jpg,dog\n")
    with refused("class-empty", "csv:3:", "'dog'", "train/cat/9.jpg"):
        image_folders.listing_of(
            source, source.parent / "out", labels=table, in_sequences=False, untrained=False,
            workers=1, reporter=Silent(), skip_missing=True,
        )


@pytest.mark.parametrize("layout", ["class folders", "labels"], indirect=True)
def test_a_class_of_bad_images_only_is_refused(source: Path, layout: str) -> None:
    (source / "train/dog").mkdir()
    for number in range(2):
        (source / f"train/dog/{number}.jpg").write_bytes(b"no image")
    if layout == "labels":
        (source / "labels.csv").write_text(
            TRAINED + "train/dog/0.jpg,dog\ntrain/dog/1.jpg,dog\nval/cat/0.jpg,cat\n"
        )
    found, out = listed(source, layout), source.parent / "out"
    with refused("class-empty", "'dog'", "train/dog/0"):
        pack(found, out, skip_bad=True)
    assert not (out / "dataset.json").exists()
    (source / "train/dog/1.jpg").write_bytes(photos.jpeg(3))
    pack(listed(source, layout), source.parent / "again", skip_bad=True)
    dataset = dataset_json.read(source.parent / "again")
    assert (dataset.classes, dataset.origin and dataset.origin.skipped) == (["cat", "dog"], 1)
