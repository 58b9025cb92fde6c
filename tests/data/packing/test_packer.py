"""Packing image folders: all samples once, the same bytes, resumed after a kill, with progress."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import psutil
import pytest

import photos
from packings import faults, files, pack, read
from refusals import refused
from shards.description import DATASET
from shards.kinds import ImageFormat
from trimaran.data import dataset_json
from trimaran.data.packing import pictures, unfinished
from trimaran.data.packing.plan import name_of
from trimaran.errors import Interrupted
from trimaran.reporting import Silent

FORMATS: tuple[ImageFormat, ...] = get_args(ImageFormat)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return photos.folder(tmp_path / "photos")


@pytest.mark.parametrize("name", FORMATS)
def test_every_image_is_packed_once_unchanged_with_its_class(
    source: Path, tmp_path: Path, name: ImageFormat
) -> None:
    dataset = pack(source, tmp_path / "out", format=name)
    assert dataset == dataset_json.read(tmp_path / "out")
    assert dataset.classes == list(photos.CLASSES)
    assert [shard.samples for shard in dataset.splits["train"].shards] == [4, 4, 4, 2]
    for split, images in photos.contents(source).items():
        found = [(*one.labels, *one.frames) for one in read(tmp_path / "out", split)]
        assert sorted(found) == sorted(images)
        assert found != images  # mixed
    assert faults(tmp_path / "out") == []
    assert not (tmp_path / "out/.packing").exists()


def test_a_record_leads_back_to_its_file(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out", format="tfrecord")
    for one in read(tmp_path / "out", "train"):
        assert (source / one.name).read_bytes() == one.frames[0]


@pytest.mark.parametrize("name", ["webdataset", "lmdb"])
def test_any_number_of_workers_gives_the_same_bytes(
    source: Path, tmp_path: Path, name: ImageFormat
) -> None:
    for workers in (1, 2):
        pack(source, tmp_path / str(workers), workers=workers, format=name, resize=12)
    assert files(tmp_path / "1") == files(tmp_path / "2")


def test_resized_images_are_said_in_the_description(source: Path, tmp_path: Path) -> None:
    (source / "train/cat/small.png").write_bytes(photos.png(1))
    dataset = pack(source, tmp_path / "out", resize=12, quality=90)
    assert dataset.origin is not None
    assert (dataset.origin.resize, dataset.origin.quality) == (12, 90)
    assert dataset.image.encoding == "jpg"
    assert all(one.frames[0][:2] == b"\xff\xd8" for one in read(tmp_path / "out", "train"))


def test_png_and_jpeg_together_need_resize(source: Path, tmp_path: Path) -> None:
    (source / "train/cat/a.png").write_bytes(photos.png(1))
    with refused("images-mixed", source) as caught:
        pack(source, tmp_path / "out")
    assert "--resize" in (caught.value.hint or "")
    assert not (tmp_path / "out").exists()


def test_files_that_are_no_images_are_left_out_and_counted(source: Path, tmp_path: Path) -> None:
    (source / "train/cat/readme.txt").write_text("")
    (source / "train/cat/.hidden.jpg").write_text("")
    (source / ".git").mkdir()
    told = Silent()
    assert pack(source, tmp_path / "out", told=told).splits["train"].samples == 14
    assert "2 files that are not images are left out; the first is train/cat/" in told.warnings[0]


def test_a_class_only_in_val_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "val/cow").mkdir()
    (source / "val/cow/1.jpg").write_bytes(photos.jpeg(1))
    with refused("class-unknown", "val/cow"):
        pack(source, tmp_path / "out")
    shutil.rmtree(source / "train")
    (source / "train").mkdir()
    with refused("class-unknown", "val/cat", "3 more"):
        pack(source, tmp_path / "out")


def test_a_source_without_train_is_refused_unless_it_is_meant(
    source: Path, tmp_path: Path
) -> None:
    shutil.rmtree(source / "train")
    with refused("split-missing", source, "val") as caught:
        pack(source, tmp_path / "out")
    assert "--no-train" in str(caught.value.hint)
    assert not (tmp_path / "out").exists()
    assert pack(source, tmp_path / "out", untrained=True).classes == ["cat", "dog", "eel"]


def test_images_that_lie_too_deep_and_broken_links_are_all_named(
    source: Path, tmp_path: Path
) -> None:
    (source / "train/cat/kittens").mkdir()
    for name in ("a.jpg", "b.jpg", "list.txt"):
        (source / "train/cat/kittens" / name).write_bytes(photos.jpeg(1))
    (source / "val/dog/gone.jpg").symlink_to("/nowhere/gone.jpg")
    (source / "val/dog/loop.jpg").symlink_to("loop.jpg")
    (source / "val/dog/notes").mkdir()  # no images in it: nothing is lost
    with refused("images-misplaced") as caught:
        pack(source, tmp_path / "out")
    assert caught.value.message.splitlines() == [
        f"{source}/train/cat/kittens/a.jpg: 2 images are too deep in the folder",
        f"{source}/val/dog/gone.jpg is a broken link",
        f"{source}/val/dog/loop.jpg is a broken link",
    ]
    assert "find SOURCE -xtype l" in str(caught.value.hint)


@pytest.mark.parametrize("name", ["test", "train/cow"])
def test_a_folder_that_is_a_link_to_nothing_is_named(
    source: Path, tmp_path: Path, name: str
) -> None:
    (source / name).symlink_to("/nowhere")
    with refused("images-misplaced", source / name):
        pack(source, tmp_path / "out")


def test_many_lost_images_are_counted(source: Path, tmp_path: Path) -> None:
    for number in range(25):
        (source / f"train/cat/gone{number:02}.jpg").symlink_to("/nowhere")
    with refused("images-misplaced", "gone09.jpg", "\nand 15 more"):
        pack(source, tmp_path / "out")


def test_images_in_no_class_are_counted_and_the_first_is_named(
    source: Path, tmp_path: Path
) -> None:
    (source / "test").mkdir()
    for place in (source, source / "test", source / "val"):
        (place / "b.jpg").write_bytes(photos.jpeg(1))
        (place / "a.jpg").write_bytes(photos.jpeg(2))
    told = Silent()
    pack(source, tmp_path / "out", told=told)
    said = [text.partition(" (")[0] for text in told.warnings]
    assert said == [
        f"{place}: 2 images are left out, because they are in no class folder; the first is a.jpg"
        for place in (source, source / "test", source / "val")
    ]


def test_a_class_only_in_train_keeps_the_numbers_of_all(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "val/cat")
    dataset = pack(source, tmp_path / "out")
    assert dataset.classes == ["cat", "dog", "eel"]
    assert {one.labels for one in read(tmp_path / "out", "val")} == {(1,), (2,)}


def test_any_name_of_a_class_is_read_back(source: Path, tmp_path: Path) -> None:
    (source / "train/cat").rename(source / "train/a\x7f\x85 \u2028b")
    (source / "val/cat").rename(source / "val/a\x7f\x85 \u2028b")
    dataset = pack(source, tmp_path / "out")
    assert dataset.classes[0] == "a\x7f\x85 \u2028b"
    assert dataset_json.read(tmp_path / "out") == dataset


def test_a_name_that_is_no_utf8_is_refused(source: Path, tmp_path: Path) -> None:
    (source / "train/cat/1\udcff.jpg").write_bytes(photos.jpeg(1))
    with refused("name-invalid", source / "train/cat", r"'1\udcff.jpg'"):
        pack(source, tmp_path / "out")
    (source / "train/cat").rename(source / "train/c\udcfft")
    with refused("name-invalid", source / "train", r"'c\udcfft'"):
        pack(source, tmp_path / "out")


def test_bad_images_are_all_named_with_the_way_out(source: Path, tmp_path: Path) -> None:
    bad = [source / "train/cat/bad.jpg", source / "val/eel/cut.jpg"]
    bad[0].write_bytes(b"no image")
    bad[1].write_bytes(photos.jpeg(50, (90, 90))[:-200])
    out = tmp_path / "out"
    with refused("image-undecodable") as caught:
        pack(source, out)
    first, second = caught.value.message.splitlines()
    assert first.startswith(f"{bad[0]} is not a JPEG")
    assert second.startswith(f"{bad[1]} cannot be decoded: ")
    assert "--skip-bad" in (caught.value.hint or "")
    assert not (out / DATASET).exists()
    dataset = pack(source, out, skip_bad=True)
    assert {name: split.samples for name, split in dataset.splits.items()} == photos.COUNTS
    lines = (out / "skipped.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["train/cat/bad.jpg", "val/eel/cut.jpg"]
    assert dataset.origin is not None
    assert dataset.origin.skipped == 2
    assert faults(out) == []
    pack(source, tmp_path / "again", skip_bad=True, workers=2)
    assert files(out) == files(tmp_path / "again")


def test_a_shard_of_bad_images_only_is_left_out(source: Path, tmp_path: Path) -> None:
    (source / "val/cat/bad.jpg").write_bytes(b"no image")
    dataset = pack(source, tmp_path / "out", skip_bad=True, samples=1)
    assert dataset.splits["val"].samples == len(dataset.splits["val"].shards) == 5
    assert faults(tmp_path / "out") == []


def test_a_split_of_bad_images_only_is_refused(source: Path, tmp_path: Path) -> None:
    for path in (source / "val").rglob("*.*"):
        path.write_bytes(b"no image")
    with refused("split-empty", "split val", "val/cat/15.jpg"):
        pack(source, tmp_path / "out", skip_bad=True)
    assert not (tmp_path / "out" / DATASET).exists()


def test_nothing_is_overwritten(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "out")
    before = files(tmp_path / "out")
    with refused("file-exists", tmp_path / "out"):
        pack(source, tmp_path / "out")
    assert files(tmp_path / "out") == before
    with refused("file-exists", source):
        pack(source, source)


def interrupted(source: Path, out: Path, monkeypatch: pytest.MonkeyPatch, after: int = 10) -> None:
    """Stop a packing by Ctrl-C after `after` images."""
    seen = 0

    def checked(content: bytes) -> bytes:
        nonlocal seen
        seen += 1
        if seen > after:
            raise KeyboardInterrupt
        return content

    with monkeypatch.context() as patch:
        patch.setattr(pictures, "checked", checked)
        with pytest.raises(Interrupted):
            pack(source, out)


def test_finished_shards_are_kept_if_they_are_whole(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, whole = tmp_path / "out", tmp_path / "whole"
    pack(source, whole)
    interrupted(source, out, monkeypatch)
    assert not (out / DATASET).exists()
    kept, damaged = out / "train-00000.tar", out / "train-00001.tar"
    before = kept.stat().st_ino
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    told = Silent()
    pack(source, out, told=told)
    assert "1 of 6 shards exist already" in told.notes[0]
    assert kept.stat().st_ino == before
    assert files(out) == files(whole)


def test_a_packing_of_something_else_is_not_gone_on_with(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(source, tmp_path / "out", monkeypatch)
    with refused("packing-conflict", tmp_path / "out"):
        pack(source, tmp_path / "out", resize=8)
    (source / "train/cat/new.jpg").write_bytes(photos.jpeg(70))
    with refused("packing-conflict", tmp_path / "out"):
        pack(source, tmp_path / "out")


def test_killed_packing_goes_on(source: Path, tmp_path: Path) -> None:
    """After SIGKILL, the worker processes end, and a second packing continues with the shards.

    The result has the same bytes as an uninterrupted packing.
    """
    for at in range(400):
        (source / f"train/dog/{at:04d}.jpg").write_bytes(photos.jpeg(at, (300, 200)))
    out, whole = tmp_path / "out", tmp_path / "whole"
    words = ["data", "pack", str(source), "-o", str(out), "--format", "lmdb", "--workers", "2",
             "--samples-per-shard", "20", "--resize", "100"]
    program = [sys.executable, "-c", "from trimaran.cli import main; main()"]
    with subprocess.Popen([*program, *words], stderr=subprocess.DEVNULL) as child:
        while not list(out.glob(".packing/*-*.json")):
            assert child.poll() is None
            time.sleep(0.02)
        workers = psutil.Process(child.pid).children(recursive=True)
        os.kill(child.pid, signal.SIGKILL)
    assert psutil.wait_procs(workers, timeout=20)[1] == []
    assert not (out / DATASET).exists()
    kept = len(list(out.glob(".packing/*-*.json")))
    done = subprocess.run([*program, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{kept} of 22 shards exist already" in done.stderr
    pack(source, whole, name="photos", format="lmdb", samples=20, resize=100)
    assert files(out) == files(whole)


def test_no_space_is_said_before_anything_is_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 1000}))
    with refused("disk-full", tmp_path / "out"):
        pack(source, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == [unfinished.STATE]


def test_disk_full_in_the_middle_is_said_and_gone_on_with(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *paths: (_ for _ in ()).throw(OSError(28, "No space")))
        with refused("disk-full", tmp_path / "out", "MB free on /"):
            pack(source, tmp_path / "out")
    pack(source, tmp_path / "out")
    assert faults(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda root: shutil.rmtree(root), "layout-invalid"),
        (lambda root: [shutil.rmtree(path) for path in root.iterdir()], "layout-invalid"),
        (lambda root: (root / "train").rename(root / "Train"), "name-invalid"),
        (lambda root: [path.unlink() for path in (root / "val").rglob("*.*")], "split-empty"),
    ],
)
def test_what_is_no_image_folder_is_said(
    source: Path, tmp_path: Path, make, code: str
) -> None:
    make(source)
    with refused(code, source):
        pack(source, tmp_path / "out")


def test_a_name_is_made_of_the_folder() -> None:
    assert name_of(Path("/data/My Photos (2)")) == "my-photos-2"
    assert name_of(Path("/")) == "images"
