"""Test packed data in one SquashFS image, which Apptainer mounts instead of a folder."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import photos
import tinyapp
from shards.description import DATASET
from tinyapp import Trimaran
from trimaran.data import cache, dataset_json, squashfs
from trimaran.data.packing import class_folders, packer
from trimaran.data.packing.plan import Options
from trimaran.errors import RunError, UsageError
from trimaran.files import sha256
from trimaran.reporting import Silent

pytestmark = [pytest.mark.engine("apptainer"), pytest.mark.timeout(280)]


@pytest.fixture
def image(trimaran: Trimaran, engine_cache: Path, tmp_path: Path) -> Path:
    made = tmp_path / "sm,all.sqfs"
    folder = engine_cache / "data/small/packed"
    done = trimaran("data", "squashfs", str(folder), "-o", str(made))
    assert (done.returncode, done.stdout) == (0, f"{made}\n"), done.stderr
    return made


def test_a_run_reads_the_image(
    trimaran: Trimaran, image: Path, engine_cache: Path, tmp_path: Path
) -> None:
    """A run reads data from the SquashFS image: its app requires dataset.json in /data."""
    out = tmp_path / "run"
    words = ["run", tinyapp.RECIPE, "--engine", "apptainer", "--data", str(image)]
    done = trimaran(*words, "--out", str(out))
    assert done.returncode == 0, done.stderr
    record = json.loads((out / "run.json").read_text())
    (data,) = record["data"]
    assert data["path"] == str(image)
    folder = engine_cache / "data/small/packed"
    assert data["sha256"] == sha256(folder / DATASET)
    assert "image-src=/" in record["command"]["shell"]
    planned = trimaran(*words, "--dry-run").stdout
    assert "image-src=/" in planned
    assert "first:" not in planned


def test_a_cut_or_other_image_is_refused(trimaran: Trimaran, image: Path, tmp_path: Path) -> None:
    words = ["run", tinyapp.RECIPE, "--engine", "apptainer", "--out", str(tmp_path / "run")]
    content = image.read_bytes()
    image.write_bytes(content[: len(content) // 2])
    done = trimaran(*words, "--data", str(image))
    assert done.returncode == 4
    assert "Traceback" not in done.stderr
    other = tmp_path / "other.sqfs"
    other.write_bytes(b"no image")
    assert trimaran(*words, "--data", str(other)).returncode == 4
    done = trimaran("run", tinyapp.RECIPE, "--engine", "host", "--data", str(other))
    assert done.returncode == 2
    assert "[engine-unsuitable]" in done.stderr


def pack(place: Path, name: str = "webdataset") -> Path:
    source, folder = photos.folder(place / "photos"), place / "packed"
    packer.pack(
        class_folders.listing(source, 1, Silent()), folder, Options("photos", name, samples=5),  # type: ignore[arg-type]
        workers=1, skip_bad=False, reporter=Silent(),
    )
    return folder


@pytest.mark.parametrize("name", ["lmdb", "webdataset"])
def test_the_image_has_every_file_and_the_same_bytes_each_time(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pack(tmp_path, name)
    images = [tmp_path / "one.sqfs", tmp_path / "two.sqfs"]
    for image in images:
        squashfs.make(folder, image, Silent())
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
        (folder / DATASET).touch()
    assert images[0].read_bytes() == images[1].read_bytes()
    inside = squashfs.look_into(images[0])
    assert inside.dataset == dataset_json.read(folder)
    assert inside.dataset.wrong_sizes(images[0], inside.sizes) == []
    assert cache.is_image(images[0])
    with pytest.raises(UsageError, match="exists"):
        squashfs.make(folder, images[0], Silent())
    next(folder.rglob("data.mdb" if name == "lmdb" else "*.tar")).unlink()
    with pytest.raises(RunError, match="is missing"):
        squashfs.make(folder, tmp_path / "three.sqfs", Silent())
    assert not list(tmp_path.glob(".three*"))


def test_a_link_to_a_folder_and_names_like_options_give_the_same_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = pack(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("link").symlink_to(folder)
    shutil.copytree(folder, "-dash")
    squashfs.make(folder, Path("plain.sqfs"), Silent())
    for given in ("link", "-dash"):
        squashfs.make(Path(given), Path(f"-{given}.sqfs"), Silent())
        inside = squashfs.look_into(Path(f"-{given}.sqfs"))
        assert inside == squashfs.look_into(Path("plain.sqfs"))
        assert inside.dataset.wrong_sizes(folder, inside.sizes) == []


@pytest.mark.parametrize("name", ["train-00001.tar", "val-00000.idx", DATASET])
def test_links_in_a_folder_are_said_and_leave_no_image(tmp_path: Path, name: str) -> None:
    folder, image = pack(tmp_path), tmp_path / "new" / "p.sqfs"
    image.parent.mkdir()
    (folder / name).rename(tmp_path / name)
    (folder / name).symlink_to(tmp_path / name)
    with pytest.raises(RunError, match=re.escape(f"{image / name} is missing")) as caught:
        squashfs.make(folder, image, Silent())
    assert f"cp -rL {folder} COPY" in (caught.value.hint or "")
    assert list(image.parent.iterdir()) == []
