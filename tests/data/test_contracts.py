"""Data contracts: the committed contracts load, and an error names place and reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import datasets
from refusals import refused
from trimaran.data import contracts
from trimaran.data.contracts import DebianSource, UrlSource
from trimaran.data.packing import pictures

Edit = Callable[[dict[str, Any]], object]


def test_fashion_mnist_is_described_and_its_sources_are_tried_in_order() -> None:
    contract = contracts.load("fashion-mnist")
    assert contract.licence.id == "MIT"
    assert {name: split.samples for name, split in contract.splits.items()} == {
        "train": 60000, "test": 10000,
    }
    official, mirror = contract.sources
    assert isinstance(official, UrlSource)
    assert isinstance(mirror, DebianSource)
    # The publisher's own numbers: https://github.com/zalandoresearch/fashion-mnist#get-the-data
    assert {sent.path: sent.md5 for sent in official.files.values()} == {
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    }


@pytest.mark.parametrize("name", contracts.names())
def test_every_committed_contract_loads(name: str) -> None:
    assert contracts.load(name).name == name


def test_unknown_name_suggests_the_nearest() -> None:
    with refused("name-unknown", "fashion-minst") as caught:
        contracts.load("fashion-minst")
    assert "fashion-mnist" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("edit", "fault"),
    [
        (lambda c: c.update(color=1), ": color: unknown key"),
        (lambda c: c.pop("licence"), "licence: is missing"),
        (lambda c: c.update(name="other"), "'other' must be 'small'"),
        (lambda c: c.update(classes=["a", "a"]), "a class is listed twice"),
        (lambda c: c["splits"].pop("train"), "'train' is missing"),
        (lambda c: c["files"].pop("test-labels"), "names test-labels, which"),
        (lambda c: c["sources"][1]["members"].update(more="x"), "sources.1: names more, which"),
        (
            lambda c: (c["sources"].pop(), c["sources"][0]["files"].pop("test-labels"),
                       c["sources"][1]["members"].pop("test-labels")),
            "sources: none provides test-labels",
        ),
        (lambda c: c["sources"][0].update(base="https://example.org/x"), "base"),
        (lambda c: c["sources"][1].update(path="../x.deb"), "sources.1"),
        (lambda c: c["sources"][1].update(path="/x.deb"), "sources.1"),
        (lambda c: c["files"]["test-labels"].update(sha256="abc"), "sha256"),
        (lambda c: c["sources"][0].update(kind="ftp"), "ftp"),
    ],
)
def test_fault_is_named(checkout: Path, tmp_path: Path, edit: Edit, fault: str) -> None:
    document = datasets.document(tmp_path)
    edit(document)
    datasets.write(checkout / "recipes/data/small.yaml", document)
    with refused("file-invalid", "small.yaml:", fault):
        contracts.load("small")


def test_the_pinned_packing_is_that_of_the_locked_encoder() -> None:
    """The contract's hashes of packed shards were made with the locked Pillow version.

    Another Pillow may compress to other bytes; then renew the hashes in the contract.
    """
    assert pictures.ENCODER == "Pillow 13.0.0", "see `packed` in recipes/data/fashion-mnist.yaml"
