"""Data sets from source to packed folder, with real files and archives, and possible faults."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import datasets
from refusals import refused
from shards.description import DATASET
from trimaran import paths
from trimaran.data import archives, cache, dataset_json, sources
from trimaran.data.packing.idx import Images
from trimaran.errors import Interrupted
from trimaran.reporting import Silent


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the folder with the files of all sources: site/, debian/, pypi/."""
    return tmp_path / "world"


@pytest.fixture
def contract(place: Path, monkeypatch: pytest.MonkeyPatch) -> Images:
    contract = Images.model_validate(datasets.document(place))
    monkeypatch.setattr(sources, "DEBIAN", place.as_uri())
    monkeypatch.setattr(sources, "SNAPSHOT", (place / "snapshot").as_uri())
    monkeypatch.setattr(sources, "PYPI", (place / "pypi").as_uri() + "/")
    monkeypatch.setenv("PATH", str(place / "bin"))
    return contract


@pytest.fixture
def told() -> Silent:
    return Silent()


@pytest.fixture
def get(contract: Images, told: Silent) -> Callable[..., Path]:
    return lambda offline=False: cache.get(contract, offline=offline, reporter=told)


Get = Callable[..., Path]


def home() -> Path:
    return paths.cache("data", "small")


def test_data_set_is_got_once(contract: Images, get: Get, place: Path, told: Silent) -> None:
    assert cache.state(contract) == "absent"
    folder = get()
    assert folder == cache.folder(contract)
    assert cache.state(contract) == "packed"
    assert sorted(p.name for p in home().iterdir()) == ["packed", "raw"]
    assert told.warnings == []
    shutil.rmtree(place)
    before = (folder / DATASET).stat().st_mtime_ns
    assert get(offline=True) == folder
    assert (folder / DATASET).stat().st_mtime_ns == before


@pytest.mark.parametrize("kind", ["debian", "pypi"])
def test_next_source_is_tried_and_gives_the_same_data(
    get: Get, place: Path, told: Silent, kind: str
) -> None:
    first = {path.name: path.read_bytes() for path in get().iterdir()}
    shutil.rmtree(home())
    for other in {"site", "debian", "pypi"} - {kind}:
        shutil.rmtree(place / other)
    second = {path.name: path.read_bytes() for path in get().iterdir()}
    assert first == second
    assert "no such file; trying Debian package small" in told.warnings[0]


def test_files_of_a_source_that_fails_midway_are_kept(
    get: Get, place: Path, told: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "site/test-labels.gz").unlink()
    unpacked = []
    monkeypatch.setattr(
        archives, "unpack",
        lambda stream, sent_as, *rest, real=archives.unpack, **more: (
            unpacked.append(sent_as), real(stream, sent_as, *rest, **more),
        ),
    )
    get()
    assert unpacked.count("train-images.gz") == 1
    assert unpacked[-1] == f"{datasets.FOLDER}/test-labels.gz"


def test_all_sources_failing_lists_each_and_says_what_to_do(get: Get, place: Path) -> None:
    shutil.rmtree(place)
    with refused("download-failed", "small") as caught:
        get()
    for title in ((place / "site").as_uri(), "Debian package small", "PyPI package small"):
        assert title in caught.value.message
    assert "small_1-1_all.deb" in (caught.value.hint or "")
    assert str(home() / "download") in (caught.value.hint or "")


def test_offline_says_what_is_missing_and_takes_what_was_put_there(
    contract: Images, get: Get, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEBIAN", "SNAPSHOT", "PYPI"):
        monkeypatch.setattr(sources, name, "http://no-such-host.invalid/")
    shutil.rmtree(place / "site")
    with refused("download-offline", "small") as caught:
        get(offline=True)
    assert "trimaran data get small" in (caught.value.hint or "")
    shutil.copy(place / "debian/pool/small_1-1_all.deb", home() / "download")
    assert cache.state(contract) == "absent"
    get(offline=True)
    assert cache.state(contract) == "packed"


def test_tampered_download_is_refused_and_kept(get: Get, place: Path, told: Silent) -> None:
    bad = place / "site/train-labels.gz"
    bad.write_bytes(bad.read_bytes() + b"x")
    get()
    assert "wrong SHA-256" in told.warnings[0]
    assert datasets.sha(bad.read_bytes()) in told.warnings[0]


def test_archive_with_other_content_is_refused_although_its_own_hash_is_right(
    place: Path, contract: Images, told: Silent
) -> None:
    """An archive is refused if a file in it has the wrong hash, even if its own hash is right.

    The contract of this test has the hash of the changed archive.
    """
    changed = datasets.contents() | {"test-labels": datasets.idx_bytes((5,), b"\0\0\0\0\0")}
    document = contract.model_dump(by_alias=True)
    deb = datasets.deb(changed)
    (place / "debian/pool/small_1-1_all.deb").write_bytes(deb)
    document["sources"] = [document["sources"][1] | {"sha256": datasets.sha(deb), "size": len(deb)}]
    with refused("download-failed", "wrong content") as caught:
        cache.get(Images.model_validate(document), offline=False, reporter=told)
    assert contract.files["test-labels"].sha256 in caught.value.message
    assert datasets.sha(changed["test-labels"]) in caught.value.message
    assert [p.name for p in (home() / "raw").glob("test-labels*")] == [
        f"test-labels.refused-{datasets.sha(changed['test-labels'])[:8]}"
    ]


def test_archive_that_lacks_a_file_or_is_none_is_said(
    place: Path, contract: Images, told: Silent
) -> None:
    lacking = datasets.contents()
    del lacking["test-labels"]
    for content, fault in (
        (datasets.deb(lacking), "lacks usr/share/datasets/small/test-labels.gz"),
        (b"no archive", "cannot be unpacked"),
        (datasets.deb(datasets.contents())[:-400], "Debian package small"),
    ):
        document = contract.model_dump(by_alias=True)
        (place / "debian/pool/small_1-1_all.deb").write_bytes(content)
        document["sources"] = [
            document["sources"][1] | {"sha256": datasets.sha(content), "size": len(content)}
        ]
        with refused("download-failed", fault):
            cache.get(Images.model_validate(document), offline=False, reporter=told)
        shutil.rmtree(home())


def test_apt_get_is_the_last_resort_for_a_debian_package(
    get: Get, place: Path, told: Silent
) -> None:
    shutil.rmtree(place / "site")
    deb = place / "mirror.deb"
    (place / "debian/pool/small_1-1_all.deb").rename(deb)
    (place / "bin").mkdir()
    program = place / "bin/apt-get"
    program.write_text(f"#!/bin/sh\n/bin/cp {deb} ./small_1%3a1_all.deb\n")
    program.chmod(0o755)
    get()
    assert "apt-get -o Acquire::Retries=0" in told.warnings[-1]
    assert "download small=1.0" in told.warnings[-1]


def test_pip_is_the_last_resort_for_a_pypi_package(
    get: Get, place: Path, told: Silent, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(place / "site")
    shutil.rmtree(place / "debian")
    wheel = place / "mirror.whl"
    (place / "pypi/ab/small-1.0-py3-none-any.whl").rename(wheel)
    program = place / "python"
    program.write_text(f"#!/bin/sh\n[ $3 = download ] && /bin/cp {wheel} ./small.whl\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    get()
    assert "-m pip download --no-deps" in told.warnings[-1]


def test_verify_finds_every_fault_and_get_repairs(
    contract: Images, get: Get, told: Silent
) -> None:
    folder = get()
    good = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert cache.verify(contract, reporter=told) == []
    (home() / "raw/test-labels").write_bytes(b"short")
    (home() / "raw/test-images").unlink()
    damaged = bytearray(good["train-00000.tar"])
    damaged[700] ^= 1
    (folder / "train-00000.tar").write_bytes(damaged)
    (folder / "test-00000.tar").write_bytes(good["test-00000.tar"][:-1])
    (folder / "test-00000.idx").unlink()
    faults = cache.verify(contract, reporter=told)
    assert len(faults) == 5
    for part in ("raw/test-labels is damaged", "raw/test-images is missing",
                 "train-00000.tar is damaged: SHA-256", "test-00000.tar has",
                 "test-00000.idx is missing"):
        assert any(part in fault for fault in faults), part
    get()
    assert cache.verify(contract, reporter=told) == []
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == good


def test_faults_are_told_where_nothing_can_be_written(
    contract: Images, get: Get, told: Silent
) -> None:
    shard = get() / "train-00000.tar"
    shard.write_bytes(shard.read_bytes()[:700])
    (home() / ".damaged").mkdir()  # as good as a file system that is read-only
    raw = home() / "raw/test-labels"
    raw.unlink()
    raw.symlink_to("/proc/self/mem")
    faults = cache.verify(contract, reporter=told)
    assert any(f"{shard} has 700 bytes" in fault for fault in faults)
    assert any(str(raw) in fault for fault in faults)
    assert ".damaged cannot be written" in told.warnings[0]


def test_bit_flip_found_by_verify_is_repaired_by_get(
    contract: Images, get: Get, told: Silent
) -> None:
    shard = get() / "train-00000.tar"
    good = shard.read_bytes()
    shard.write_bytes(good[:700] + b"?" + good[701:])
    assert cache.state(contract) == "packed"  # sizes cannot tell
    assert len(cache.verify(contract, reporter=told)) == 1
    get(offline=True)
    assert shard.read_bytes() == good


@pytest.mark.parametrize(
    ("old", "new"),
    [("v1.2 23", "v1.2 24"), ("png 512 ", "png 513 "), ("cls", "txt"), (".png cls", ".jpg cls")],
)
def test_damaged_index_is_found(
    contract: Images, get: Get, told: Silent, old: str, new: str
) -> None:
    index = get() / "train-00000.idx"
    index.write_text(index.read_text().replace(old, new, 1))
    faults = cache.verify(contract, reporter=told)
    assert [fault for fault in faults if "train-00000.tar" in fault and index.name in fault]


def test_verify_of_what_is_not_there(contract: Images, told: Silent) -> None:
    assert "small is not in the cache" in cache.verify(contract, reporter=told)[0]


def test_raw_files_alone_are_packed_offline(contract: Images, get: Get, place: Path) -> None:
    shutil.rmtree(get())
    shutil.rmtree(place)
    assert cache.state(contract) == "downloaded"
    get(offline=True)
    assert cache.state(contract) == "packed"


def test_data_of_an_older_contract_is_made_anew(
    contract: Images, get: Get, told: Silent
) -> None:
    get()
    document = contract.model_dump(by_alias=True) | {"classes": ["x", "y", "z"]}
    newer = Images.model_validate(document)
    assert cache.state(newer) == "downloaded"
    folder = cache.get(newer, offline=True, reporter=told)
    assert dataset_json.read(folder).classes == ["x", "y", "z"]


def test_ctrl_c_is_said_and_leaves_nothing_half_made(
    contract: Images, get: Get, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("trimaran.data.packing.arrays._png", interrupted)
        with pytest.raises(Interrupted):
            get()
    assert sorted(path.name for path in home().iterdir()) == ["download", "raw"]
    assert cache.state(contract) == "downloaded"


def test_folder_of_the_user_is_checked(contract: Images, get: Get, tmp_path: Path) -> None:
    own = tmp_path / "own"
    shutil.copytree(get(), own)
    cache.check(contract, own, {"train": 23, "test": 5}, "webdataset", ["class"])
    with refused("data-mismatch", "split train", 23, 24):
        cache.check(contract, own, {"train": 24}, "webdataset", ["class"])
    with refused("data-mismatch", "webdataset", "lmdb") as other:
        cache.check(contract, own, {}, "lmdb", ["class"])
    assert "data pack SOURCE -o PACKED --format lmdb" in other.value.hint
    with refused("data-mismatch", "split val"):
        cache.check(contract, own, {"val": 1}, "webdataset", ["class"])
    (own / "test-00000.tar").unlink()
    with refused("data-mismatch", "test-00000.tar"):
        cache.check(contract, own, {}, "webdataset", ["class"])
    with refused("data-missing", tmp_path):
        cache.check(contract, tmp_path, {}, "webdataset", ["class"])
    document = json.loads((own / DATASET).read_text()) | {"name": "other"}
    (own / DATASET).write_text(json.dumps(document))
    with refused("data-mismatch", "'other'", "'small'"):
        cache.check(contract, own, {}, "webdataset", ["class"])
    (own / DATASET).write_text("{")
    with refused("file-invalid", own / DATASET):
        cache.check(contract, own, {}, "webdataset", ["class"])


def test_folder_of_the_user_needs_no_origin(
    contract: Images, get: Get, tmp_path: Path, told: Silent
) -> None:
    own = tmp_path / "own"
    shutil.copytree(get(), own)
    document = json.loads((own / DATASET).read_text())
    del document["origin"]
    (own / DATASET).write_text(json.dumps(document))
    cache.check(contract, own, {"train": 23}, "webdataset", ["class"])
    assert dataset_json.verify_folder(contract, own, records=True, reporter=told) == []
