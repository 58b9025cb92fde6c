"""CIFAR-10: the binary and the Python archive give the same packed data set in colour.

Damage in an archive is reported.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

import cifars
import datasets
from cifars import COUNTS, SPLITS
from refusals import refused
from trimaran import cli
from trimaran.data import cache, contracts, dataset_json
from trimaran.data.contracts import TarSource
from trimaran.data.packing import arrays
from trimaran.data.packing.cifar_reader import Cifar, Coloured
from trimaran.errors import RunError
from trimaran.reporting import Silent

NAME = "tiny-cifar"


@pytest.fixture
def world(tmp_path: Path) -> Path:
    """Return the path of the folder for CIFAR-10's binary and Python archives."""
    return tmp_path / "world"


@pytest.fixture
def described(checkout: Path, world: Path) -> dict[str, Any]:
    document = cifars.document(world)
    datasets.write(checkout / f"recipes/data/{NAME}.yaml", document)
    return document


def load(checkout: Path, document: dict[str, Any]) -> Cifar:
    datasets.write(checkout / f"recipes/data/{NAME}.yaml", document)
    found = contracts.load(NAME)
    assert isinstance(found, Cifar)
    return found


def shown(*words: object) -> str:
    done = CliRunner().invoke(cli.app, ["data", *map(str, words)])
    assert done.exception is None, done.exception
    return done.stdout.strip()


def packed(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_both_forms_give_the_same_packed_data_set(
    checkout: Path, described: dict[str, Any], own_place: Path
) -> None:
    found = []
    for source in described["sources"]:
        contract = load(checkout, described | {"name": NAME, "sources": [source]})
        folder = cache.get(contract, offline=True, reporter=Silent())
        found.append(packed(folder))
        folder.parent.rename(own_place / f"done-{len(found)}")
    assert found[0] == found[1]


def test_data_get_packs_every_image_in_its_colours(
    described: dict[str, Any], own_place: Path
) -> None:
    folder = Path(shown("get", NAME, "--offline"))
    dataset = dataset_json.read(folder)
    assert (dataset.classes, dataset.image.channels) == (cifars.CLASSES, 3)
    assert (dataset.image.width, dataset.image.height, dataset.image.encoding) == (32, 32, "png")
    for split, names in SPLITS.items():
        records = [cifars.images(name) for name in names]
        labels, pixels = (b"".join(part) for part in zip(*records, strict=True))
        (shard,) = dataset.splits[split].shards
        with tarfile.open(folder / shard.file) as tar:
            members = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
        assert len(members) == 2 * len(labels)
        for number, label in enumerate(labels):
            assert members[f"{number:08}.cls"] == str(label).encode()
            image = Image.open(io.BytesIO(members[f"{number:08}.png"]))
            planes = pixels[number * 3072 :][:3072]
            assert (image.mode, image.size) == ("RGB", (32, 32))
            assert b"".join(one.tobytes() for one in image.split()) == planes
    assert shown("verify", NAME, "--workers", 1) == f"{NAME}: all files are intact"


def test_mean_and_deviation_are_those_of_each_channel(
    described: dict[str, Any], own_place: Path
) -> None:
    facts = dataset_json.read(Path(shown("get", NAME, "--offline"))).image
    pixels = b"".join(cifars.images(name)[1] for name in SPLITS["train"])
    for channel in range(3):
        values = [
            value / 255 for start in range(0, len(pixels), 3072)
            for value in pixels[start + 1024 * channel :][:1024]
        ]
        mean = sum(values) / len(values)
        deviation = (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        assert facts.mean[channel] == pytest.approx(mean, abs=1e-6)
        assert facts.std[channel] == pytest.approx(deviation, abs=1e-6)


@given(st.binary(min_size=1, max_size=4), st.integers(0, 255))
def test_any_records_come_back(drawn: bytes, shift: int) -> None:
    labels = bytes(value % 10 for value in drawn)
    pixels = bytes((place * 7 + shift) % 256 for place in range(3072 * len(labels)))
    samples = Coloured("train", cifars.binary(labels, pixels))
    assert [samples.labels(at) for at in range(len(samples))] == [(one,) for one in labels]
    images = [samples.frames(at)[0] for at in range(len(samples))]
    assert b"".join(plane.tobytes() for one in images for plane in one.split()) == pixels
    counts = samples.histogram()
    assert [sum(counts[start:][:256]) for start in (0, 256, 512)] == [1024 * len(labels)] * 3
    size = sum(len(record.frames[0]) for record in arrays.records(
        samples, list(range(len(samples))), lambda amount: None))
    assert size <= arrays._packed_size_at_most(samples)


@pytest.mark.parametrize(
    ("content", "code", "fault"),
    [
        (b"", "data-damaged", "0 bytes"),
        (bytes(7 * 3073 - 1), "data-damaged", "21,510 bytes, which are not records of 3,073"),
        (bytes(6 * 3073), "data-mismatch", "6 samples, not 7"),
        (bytes(8 * 3073), "data-mismatch", "8 samples, not 7"),
        (bytes(3073) + b"\x0a" + bytes(5 * 3073 + 3072), "data-mismatch", "record 1 has class 10"),
    ],
)
def test_a_faulty_file_is_named(
    checkout: Path, described: dict[str, Any], tmp_path: Path, content: bytes, code: str, fault: str
) -> None:
    (tmp_path / "test_batch.bin").write_bytes(content)
    with refused(code, "test_batch.bin", fault) as caught:
        load(checkout, described).read(tmp_path, "test")
    assert "the data contract" in (caught.value.hint or "")


@given(st.binary(max_size=40))
def test_any_file_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        contract = Cifar.model_validate(cifars.document(root))
        (root / "test_batch.bin").write_bytes(content)
        with pytest.raises(RunError):
            contract.read(root, "test")


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"classes": ["a", "a"]}, "a class is listed twice"),
        ({"splits": {"train": {"samples": 1, "files": [*COUNTS, "test_batch.bin"]}}},
         "a file is listed twice"),
        ({"splits": {"train": {"samples": 1, "files": []}}}, "splits.train.files"),
        ({"splits": {"train": {"samples": 1, "files": ["test_batch.bin"]}}},
         "splits: lacks data_batch_1.bin, data_batch_2.bin"),
    ],
)
def test_a_fault_of_the_contract_is_named(
    checkout: Path, described: dict[str, Any], changed: dict[str, Any], fault: str
) -> None:
    with refused("file-invalid", f"{NAME}.yaml:", fault):
        load(checkout, described | changed)


def test_a_link_in_the_archive_is_not_followed(
    checkout: Path, described: dict[str, Any], world: Path, own_place: Path
) -> None:
    """An archive is refused if a needed file in it is a link, and no other member is written."""
    files = cifars.folders()["binary"]
    secret = files.pop(f"{cifars.BINARY}/test_batch.bin")
    (world / "secret").write_bytes(secret)
    archive = cifars.tar_gz({"../../evil": b"x", "/tmp/evil": b"x", **files},
                            {f"{cifars.BINARY}/test_batch.bin": str(world / "secret")})
    contract = load(checkout, described | {"sources": [cifars.source(world, "binary", archive)]})
    with refused("download-failed", "lacks cifar-10-batches-bin/test_batch.bin"):
        cache.get(contract, offline=False, reporter=Silent())
    assert not list(own_place.rglob("evil*"))


def test_a_member_that_grows_without_end_is_stopped(
    checkout: Path, described: dict[str, Any], world: Path, own_place: Path
) -> None:
    files = cifars.folders()["binary"] | {f"{cifars.BINARY}/test_batch.bin": bytes(50_000_000)}
    source = cifars.source(world, "binary", cifars.tar_gz(files))
    contract = load(checkout, described | {"sources": [source]})
    with refused("download-failed", "wrong content", "more than 21,511 bytes"):
        cache.get(contract, offline=False, reporter=Silent())
    (refusal,) = cache.Place.of(contract, None).home.glob("raw/test_batch.bin.refused-*")
    assert refusal.stat().st_size < 3_000_000


def test_a_header_with_a_wrong_number_is_refused(
    checkout: Path, described: dict[str, Any], world: Path, own_place: Path
) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        member = tarfile.TarInfo(f"{cifars.BINARY}/test_batch.bin")
        member.pax_headers = {"GNU.sparse.map": "a,b", "GNU.sparse.major": "0"}
        tar.addfile(member)
    source = cifars.source(world, "binary", gzip.compress(buffer.getvalue()))
    contract = load(checkout, described | {"sources": [source]})
    with refused("download-failed", "cannot be unpacked"):
        cache.get(contract, offline=False, reporter=Silent())


def test_a_hostile_pickle_in_the_archive_is_refused(
    checkout: Path, described: dict[str, Any], world: Path, own_place: Path
) -> None:
    hostile = b"\x80\x02cposix\nsystem\nU\x02id\x85R."
    files = cifars.folders()["python"] | {f"{cifars.PYTHON}/test_batch": hostile}
    contract = load(checkout, described | {
        "sources": [cifars.source(world, "python", cifars.tar_gz(files))]})
    with refused("download-failed", "cifar-10-batches-py/test_batch is not a batch of CIFAR-10",
                 "'posix system'"):
        cache.get(contract, offline=False, reporter=Silent())


def test_the_second_form_is_taken_if_the_first_is_damaged(
    described: dict[str, Any], world: Path, own_place: Path
) -> None:
    first = world / "cifar-10-binary.tar.gz"
    first.write_bytes(first.read_bytes()[:-1])
    assert dataset_json.read(Path(shown("get", NAME))).splits["test"].samples == 7


def test_the_committed_contract_has_the_published_numbers() -> None:
    contract = contracts.load("cifar-10")
    assert isinstance(contract, Cifar)
    assert {name: split.samples for name, split in contract.splits.items()} == {
        "train": 50000, "test": 10000,
    }
    assert {content.size for content in contract.files.values()} == {10_000 * 3073}
    sources = {one.path: one for one in contract.sources if isinstance(one, TarSource)}
    # The publisher's own numbers: https://www.cs.toronto.edu/~kriz/cifar.html
    assert {path: one.md5 for path, one in sources.items()} == {
        "cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530",
        "cifar-10-python.tar.gz": "c58f30108f718f92721af3b95e74349a",
    }
    assert COUNTS.keys() < contract.files.keys()
