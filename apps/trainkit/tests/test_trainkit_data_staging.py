"""Tests of `--stage`: shards are copied once to a local disk, checked, and reused."""

import errno
import fcntl
import json
import os
import shutil
import threading
import time
from collections import namedtuple
from pathlib import Path

import pytest
from written_shards import image_folder, list_checksum

from trainkit.data import staging
from trainkit.data.dataset import open_dataset
from trainkit.data.staging import stage
from trainkit.exits import ArgumentError, DataError
from trainkit.testing.refusals import refused


@pytest.fixture
def source(tiny: Path, tmp_path: Path) -> Path:
    folder = Path(shutil.copytree(tiny, tmp_path / "source"))
    document = json.loads((folder / "dataset.json").read_text())
    document["splits"]["extra"] = document["splits"]["test"]
    (folder / "dataset.json").write_text(json.dumps(document))
    return folder


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list, to which the name of each copied file is appended."""
    names: list[str] = []
    whole = staging._copy_file

    def spy(file: staging.File, own: str, advance: object) -> None:
        names.append(file.target.name)
        whole(file, own, advance)

    monkeypatch.setattr(staging, "_copy_file", spy)
    return names


def test_the_copy_is_the_same_data_and_is_made_once(
    source: Path, tmp_path: Path, copied: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = stage(source, tmp_path / "node" / "fast", local_rank=0)
    assert "staging 0.00 GB" in capsys.readouterr().err
    assert place.parent == tmp_path / "node" / "fast"
    dataset = open_dataset(place)
    assert dataset.fingerprint() == open_dataset(source).fingerprint()
    for split in ("train", "test"):
        one, two = dataset.records(split), open_dataset(source).records(split)
        assert all((one.encoded(n) == two.encoded(n)).all() for n in range(len(one)))
    assert copied[-1] == "dataset.json"
    copied.clear()
    assert stage(source, place.parent, local_rank=0) == place
    assert stage(source, place.parent, local_rank=3) == place
    assert copied == []
    assert capsys.readouterr().err == ""


def test_a_cut_off_copy_goes_on_and_a_short_file_is_made_again(
    source: Path, tmp_path: Path, copied: list[str]
) -> None:
    place = stage(source, tmp_path / "node", local_rank=0)
    copied.clear()
    (place / "dataset.json").unlink()
    (place / "train-00001.tar").rename(place / "train-00001.tar.part")
    (place / "train-00002.tar").write_bytes(b"short")
    stage(source, tmp_path / "node", local_rank=0)
    assert copied == ["train-00001.tar", "train-00002.tar", "dataset.json"]
    assert not list(place.glob("*.part"))


def test_an_edited_description_of_equal_length_is_copied_again(
    source: Path, tmp_path: Path, copied: list[str]
) -> None:
    place = stage(source, tmp_path / "node", local_rank=0)
    document = json.loads((source / "dataset.json").read_text())
    document["classes"] = document["classes"][::-1]
    edited = json.dumps(document)
    assert len(edited) == (source / "dataset.json").stat().st_size
    (source / "dataset.json").write_text(edited)
    copied.clear()
    with refused(DataError, "staging-stalled", place):
        stage(source, tmp_path / "node", local_rank=1, patience=0.1)
    assert stage(source, tmp_path / "node", local_rank=0) == place
    assert copied == ["dataset.json"]
    assert open_dataset(place).classes == open_dataset(source).classes
    assert stage(source, tmp_path / "node", local_rank=1, patience=0.1) == place


def test_other_ranks_wait_until_all_is_there(source: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(staging, "POLL", 0.01)
    found: list[Path] = []

    def wait() -> None:
        place = stage(source, tmp_path / "node", local_rank=1)
        open_dataset(place).records("train")
        found.append(place)

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.05)
    assert not found
    place = stage(source, tmp_path / "node", local_rank=0)
    waiter.join(10)
    assert found == [place]


def test_a_waiting_rank_gives_up_when_nothing_moves(source: Path, tmp_path: Path) -> None:
    with refused(DataError, "staging-stalled", tmp_path / "node", " 0.1 s"):
        stage(source, tmp_path / "node", local_rank=1, patience=0.1)


def test_too_little_space_is_said_before_anything_is_copied(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10, 10, 1000))
    with refused(ArgumentError, "disk-full", f"--stage {tmp_path / 'node'}", " 0.00 GB"):
        stage(source, tmp_path / "node", local_rank=0)
    assert not list((tmp_path / "node").rglob("*.tar"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content[:-512], r"has \d+ bytes, but dataset\.json lists"),
        (lambda content: content[:-1] + b"x", "does not have the checksum in"),
    ],
)
def test_a_damaged_shard_is_named_and_gets_no_name(
    source: Path, tmp_path: Path, change, said: str
) -> None:
    shard = source / "train-00001.tar"
    shard.write_bytes(change(shard.read_bytes()))
    with pytest.raises(DataError, match=f"shard {shard} .*{said}"):
        stage(source, tmp_path / "node", local_rank=0)
    assert not list((tmp_path / "node").rglob("train-00001*.tar*"))


def test_a_damaged_index_gets_no_name(source: Path, tmp_path: Path) -> None:
    index = source / "train-00001.idx"
    list_checksum(source, index)
    index.write_bytes(index.read_bytes()[:-2] + b"0\n")
    with refused(DataError, "data-damaged", index, "checksum"):
        stage(source, tmp_path / "node", local_rank=0)
    assert not list((tmp_path / "node").rglob("train-00001.idx*"))


def test_a_missing_file_is_named(source: Path, tmp_path: Path) -> None:
    (source / "train-00001.tar").unlink()
    with refused(DataError, "file-unreadable", source / "train-00001.tar"):
        stage(source, tmp_path / "one", local_rank=0)
    (source / "train-00001.idx").unlink()
    with refused(DataError, "file-unwritable", "train-00001.idx"):
        stage(source, tmp_path / "two", local_rank=0)


def test_a_place_that_is_no_folder_is_said(source: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refused(ArgumentError, "file-unwritable", f"--stage {tmp_path / 'file'}: "):
        stage(source, tmp_path / "file", local_rank=0)


def test_a_folder_of_images_is_refused(tmp_path: Path, tiny: Path) -> None:
    folder = image_folder(tmp_path / "images", {"train": ([b"\x89PNG"], [0])}, classes=1)
    with refused(ArgumentError, "data-unsuitable", folder):
        stage(folder, tmp_path / "node", local_rank=0)


@pytest.mark.parametrize("number", [
    errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL,
])
def test_a_file_system_without_locks_is_staged_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / "node").mkdir()
    names: set[str] = set()
    whole = staging._copy_file

    def spy(file: staging.File, own: str, advance: object) -> None:
        names.add(own)
        whole(file, own, advance)

    monkeypatch.setattr(staging, "_copy_file", spy)
    place = stage(source, tmp_path / "node", local_rank=0)
    assert open_dataset(place).fingerprint() == open_dataset(source).fingerprint()
    assert [path for path in place.iterdir() if ".part" in path.name] == []
    [own] = names
    assert own, "two jobs must not write into one unfinished file"


@pytest.mark.parametrize(("number", "said"), [
    (errno.EIO, "Input/output error"), (errno.EINTR, "Interrupted"),
])
def test_another_fault_of_the_lock_has_no_none_in_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ArgumentError, match=said) as caught:
        stage(source, tmp_path / "node", local_rank=0)
    assert "None" not in str(caught.value)
