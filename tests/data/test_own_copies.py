"""`data get --from` takes the files of a data set from the user's copy, and downloads nothing."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

import cifars
import datasets
from refusals import refused
from trimaran.data import archives, cache, contracts
from trimaran.data.contracts import AnyContract, Contract
from trimaran.data.packing.idx import Images
from trimaran.reporting import Silent


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Create an empty folder, in which tests put the user's own copy of a data set."""
    folder = tmp_path / "copy"
    folder.mkdir()
    return folder


@pytest.fixture
def contract(checkout: Path, tmp_path: Path, own_place: Path) -> AnyContract:
    """Return a contract whose sources cannot be reached."""
    document = cifars.document(tmp_path / "world")
    for source in document["sources"]:
        source["base"] = "http://no-such-host.invalid/"
    datasets.write(checkout / "recipes/data/tiny-cifar.yaml", document)
    return contracts.load("tiny-cifar")


def get(contract: AnyContract, given: Path) -> dict[str, bytes]:
    folder = cache.get(contract, offline=False, reporter=Silent(), source=given)
    found = {path.name: path.read_bytes() for path in folder.iterdir()}
    shutil.rmtree(folder.parent)
    return found


def raw(contract: AnyContract) -> Path:
    return cache.Place.of(contract, None).home / "raw"


def unpack(folder: Path, kind: str) -> Path:
    """Write the files of the archive `kind` below `folder`; return the folder with the files."""
    files = cifars.folders()[kind]
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    return (folder / next(iter(files))).parent


def test_archives_and_unpacked_folders_of_both_forms_give_the_same_data(
    contract: AnyContract, copy: Path, tmp_path: Path
) -> None:
    found = []
    for kind in ("binary", "python"):
        archive = Path(shutil.copy(tmp_path / f"world/cifar-10-{kind}.tar.gz", copy))
        found += [get(contract, copy), get(contract, archive)]
        archive.unlink()
        inner = unpack(copy, kind)
        found += [get(contract, copy), get(contract, inner)]
        shutil.rmtree(inner)
    assert len(found) == 8
    assert all(one == found[0] for one in found)
    assert list(copy.iterdir()) == []  # nothing is written into the user's folder


def test_the_copy_of_a_web_server_is_taken(copy: Path, tmp_path: Path, own_place: Path) -> None:
    small = Images.model_validate(datasets.document(tmp_path / "world"))
    for name, content in datasets.contents().items():
        (copy / f"{name}.gz").write_bytes(gzip.compress(content))  # another gzip header is fine
    assert get(small, copy)


def test_what_is_missing_is_named_with_what_would_do(contract: AnyContract, copy: Path) -> None:
    inner = unpack(copy, "python")
    (inner / "data_batch_2").unlink()
    with refused("file-missing", copy, "lacks data_batch_2.bin of tiny-cifar") as caught:
        get(contract, copy)
    for way in ("cifar-10-binary.tar.gz, or the unpacked folder cifar-10-batches-bin",
                "cifar-10-python.tar.gz, or the unpacked folder cifar-10-batches-py"):
        assert way in (caught.value.hint or "")


@pytest.mark.parametrize("given", ["absent", "copy/cifar-10-binary.tar.gz", "copy"])
def test_nothing_is_downloaded(contract: AnyContract, copy: Path, given: str) -> None:
    with refused("file-missing", copy.parent / given):
        get(contract, copy.parent / given)


def test_a_damaged_archive_is_refused_before_it_is_opened(
    contract: AnyContract, copy: Path, tmp_path: Path
) -> None:
    content = (tmp_path / "world/cifar-10-binary.tar.gz").read_bytes()
    archive = copy / "cifar-10-binary.tar.gz"
    archive.write_bytes(content[:-1] + b"x")
    unpack(copy, "python")
    with refused("checksum-mismatch", archive, datasets.sha(content)) as caught:
        get(contract, copy)
    assert "or remove it" in (caught.value.hint or "")
    archive.unlink()
    assert get(contract, copy)


@pytest.mark.parametrize(
    ("kind", "content", "code", "fault"),
    [
        ("binary", bytes(7 * 3073), "checksum-mismatch", "wrong content"),
        ("binary", bytes(40_000_000), "checksum-mismatch", "more than 21,511 bytes"),
        ("python", cifars.python(bytes(7), bytes(7 * 3072)), "checksum-mismatch", "wrong content"),
        ("python", b"\x80\x02cos\nsystem\nU\x02id\x85R.", "data-damaged", "'os system'"),
        ("python", b"", "data-damaged", "incomplete"),
        ("python", bytes(40_000_000), "data-damaged", "larger than"),
    ],
)
def test_an_unpacked_file_that_differs_is_refused(
    contract: AnyContract, copy: Path, kind: str, content: bytes, code: str, fault: str
) -> None:
    path = unpack(copy, kind) / ("test_batch" + (".bin" if kind == "binary" else ""))
    path.write_bytes(content)
    with refused(code, path, fault) as caught:
        get(contract, copy)
    assert "copy it again" in (caught.value.hint or "")
    assert path.read_bytes() == content
    assert not list(raw(contract).glob("*test_batch*"))  # the user has the wrong file already
    assert cache.state(contract) == "absent"


def test_the_data_set_is_packed_after_the_copy_is_whole(
    contract: AnyContract, copy: Path, tmp_path: Path
) -> None:
    """A data set is packed once the user has repaired the damaged file in their own copy of it.

    Files that were copied into the cache before the fault was found are kept there, like the
    files of an interrupted download.
    """
    inner = unpack(copy, "binary")
    last = (inner / "test_batch.bin").read_bytes()
    (inner / "test_batch.bin").write_bytes(b"x")
    with refused("checksum-mismatch", "test_batch.bin"):
        get(contract, copy)
    (inner / "data_batch_1.bin").unlink()
    (inner / "test_batch.bin").write_bytes(last)
    assert get(contract, copy)


@pytest.mark.parametrize("name", ["x" * 300, "loop"])
def test_a_path_that_cannot_be_examined_is_not_a_fault_of_the_cache(
    contract: AnyContract, copy: Path, name: str
) -> None:
    (copy / "loop").symlink_to("loop")
    with refused("file-unreadable" if name != "loop" else "file-missing", name) as caught:
        get(contract, copy / name)
    assert "TRIMARAN_CACHE" not in (caught.value.hint or "")


def test_a_copy_that_cannot_be_read_is_not_a_fault_of_the_cache(
    contract: AnyContract, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = unpack(copy, "binary") / "test_batch.bin"
    path.unlink()
    path.symlink_to("/proc/self/mem")  # its first byte can be read by nobody
    with refused("file-unreadable", path) as caught:
        get(contract, copy)
    assert "TRIMARAN_CACHE" not in (caught.value.hint or "")


def test_a_missing_copy_is_refused_although_the_data_set_is_packed(
    contract: AnyContract, copy: Path
) -> None:
    unpack(copy, "binary")
    cache.get(contract, offline=False, reporter=Silent(), source=copy)
    with refused("file-missing", copy / "absent"):
        cache.get(contract, offline=False, reporter=Silent(), source=copy / "absent")


def test_damaged_raw_files_are_taken_from_the_copy_without_a_download(
    contract: AnyContract, copy: Path
) -> None:
    unpack(copy, "binary")
    cache.get(contract, offline=False, reporter=Silent(), source=copy)
    file = raw(contract) / "test_batch.bin"
    whole = file.read_bytes()
    file.write_bytes(b"x")
    assert cache.verify(contract, reporter=Silent())
    told = Silent()
    cache.get(contract, offline=False, reporter=told, source=copy)
    assert file.read_bytes() == whole
    assert not any("no-such-host" in warning for warning in told.warnings)
    assert cache.verify(contract, reporter=Silent()) == []


def test_the_error_of_a_folder_that_cannot_be_written_is_the_first_one(
    contract: AnyContract, copy: Path
) -> None:
    """If a folder cannot be written, its error is reported, and no second error follows from it.

    The unfinished file does not exist, so its removal must not fail.
    """
    unpack(copy, "binary")
    assert isinstance(contract, Contract)
    content = contract.files["test_batch.bin"]
    with (copy / cifars.BINARY / "test_batch.bin").open("rb") as stream, pytest.raises(
        FileNotFoundError
    ) as caught:
        archives.unpack(stream, "test_batch.bin", copy / "absent/test_batch.bin", content)
    assert caught.value.__context__ is None


def test_a_published_archive_without_the_files_of_the_contract_is_a_fault_of_the_contract(
    checkout: Path, copy: Path, tmp_path: Path, own_place: Path
) -> None:
    document = cifars.document(tmp_path / "world")
    archive = cifars.tar_gz({"other/file": b"x"})
    document["sources"] = [cifars.source(tmp_path / "world", "binary", archive)]
    datasets.write(checkout / "recipes/data/tiny-cifar.yaml", document)
    (copy / "cifar-10-binary.tar.gz").write_bytes(archive)
    with refused("data-damaged", "lacks cifar-10-batches-bin/data_batch_1.bin") as caught:
        get(contracts.load("tiny-cifar"), copy)
    assert "the data contract is wrong" in (caught.value.hint or "")
