"""Tests of `dataset.json`: written files are read back, and the position of a fault is named."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shards import description
from shards.description import Dataset
from shards.entries import Malformed

DOCUMENT: dict[str, Any] = {
    "schema": 1, "name": "photos", "format": "tfrecord", "classes": ["a", "é"],
    "labels": "multi",
    "image": {"channels": 1, "height": 28, "width": None, "encoding": "png", "mean": [0.5],
              "std": [1e-3]},
    "splits": {"train": {"samples": 2, "shards": [
        {"file": "train/0.tfrecord", "index": "0.idx", "index_sha256": "b" * 64, "samples": 2,
         "bytes": 9, "sha256": "a" * 64},
    ]}},
    "origin": {"contents": {"a.zip": "c" * 64}, "order_seed": 1, "encoder": "none",
               "resize": [3, 4]},
}
SHARD = ("splits", "train", "shards", 0)


def parsed(document: object, *, strict: bool = True) -> Dataset:
    return description.parse(document, strict=strict)


def test_what_is_written_is_read_again() -> None:
    dataset = parsed(DOCUMENT)
    assert dataset.origin is not None
    assert dataset.origin.resize == (3, 4)
    assert json.loads(description.text(dataset)) == DOCUMENT
    assert list(json.loads(description.text(dataset))) == list(DOCUMENT)
    assert parsed(json.loads(description.text(dataset))) == dataset


def test_shards_and_indexes_have_their_checksums() -> None:
    assert parsed(DOCUMENT).hashes() == {"train/0.tfrecord": "a" * 64, "0.idx": "b" * 64}


def test_files_that_are_missing_or_of_another_size_are_named(tmp_path: Path) -> None:
    dataset = parsed(DOCUMENT)
    (tmp_path / "train").mkdir()
    (tmp_path / "train/0.tfrecord").write_bytes(b"12345678")
    assert dataset.missing_files(tmp_path) == [
        f"{tmp_path / 'train/0.tfrecord'} has 8 bytes, 9 are listed",
        f"{tmp_path / '0.idx'} is missing",
    ]


@pytest.mark.parametrize(("where", "value", "problem"), [
    (("name",), "Photos", "is not a name"),
    (("format",), "zip", "is not one of webdataset"),
    (("labels",), None, "is not one of class"),
    (("classes",), "a", "is not a list"),
    (("classes", 1), 3, "is not text"),
    (("image",), [], "is not an object"),
    (("image", "channels"), True, "is not one of 1, 3"),
    (("image", "height"), -1, "is not a whole number"),
    (("image", "width"), 1.5, "is not a whole number"),
    (("image", "mean", 0), float("nan"), "is not a finite number"),
    (("splits",), [], "is not an object"),
    (("splits", "train", "samples"), True, "is not a whole number"),
    ((*SHARD, "sha256"), "A" * 64, "is no SHA-256"),
    ((*SHARD, "index"), "../0.idx", "is not a plain name"),
    *(((*SHARD, "file"), name, "must be a relative path")
      for name in ("/etc/passwd", "../a", "a/../../b", "a//b", "./a", "", "a/", "a\n")),
    (("origin", "resize", 0), "x", "is not a whole number"),
    (("schema",), 2, "is not 1"),
])
def test_a_fault_has_its_place(where: tuple[Any, ...], value: object, problem: str) -> None:
    document = copy.deepcopy(DOCUMENT)
    place: Any = document
    for part in where[:-1]:
        place = place[part]
    place[where[-1]] = value
    with pytest.raises(Malformed) as caught:
        parsed(document)
    (fault,) = caught.value.faults
    assert fault.where == where
    assert problem in fault.problem


def test_all_faults_are_told_at_once() -> None:
    document = copy.deepcopy(DOCUMENT)
    del document["image"]["mean"], document["splits"]["train"]["shards"][0]["bytes"]
    document["classes"] = None
    with pytest.raises(Malformed) as caught:
        parsed(document)
    assert [fault.where for fault in caught.value.faults] == [
        ("classes",), ("image", "mean"), (*SHARD, "bytes"),
    ]


def test_what_a_later_packer_adds_is_refused_only_by_who_is_strict() -> None:
    document = DOCUMENT | {"added": 1}
    assert parsed(document, strict=False) == parsed(DOCUMENT)
    with pytest.raises(Malformed, match="added: unknown key"):
        parsed(document)


def test_what_a_training_imports_needs_no_library_of_a_format() -> None:
    """The modules that a training imports must not import h5py or another library of a format.

    Some container images of apps lack the libraries of formats that the apps do not use.
    """
    code = (
        "import sys; import shards.description, shards.formats, shards.formats.mapped;"
        "import shards.formats.tfrecord, shards.formats.recordio, shards.formats.webdataset;"
        "print({'h5py', 'lmdb', 'PIL', 'google_crc32c', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


TEXT: dict[str, Any] = {
    "schema": 1, "name": "texts", "format": "tokens", "classes": [], "labels": "none",
    "sample": "text",
    "text": {"token": "uint16", "vocabulary": 257, "end": 256, "documents": "line",
             "held_out": "folders",
             "tokenizer": {"file": "tokenizer.json", "sha256": "d" * 64, "made": "bytes"}},
    "splits": {"train": {"samples": 2, "tokens": 5, "text_bytes": 3, "shards": [
        {"file": "train-00000.safetensors", "samples": 2, "bytes": 9, "sha256": "a" * 64,
         "tokens": 5, "text_bytes": 3},
    ]}},
    "origin": {"contents": {}, "encoder": "tokenizers 1"},
}


def test_a_text_is_read_again_with_its_counts_and_its_tokenizer(tmp_path: Path) -> None:
    dataset = parsed(TEXT)
    assert json.loads(description.text(dataset)) == TEXT
    assert dataset.kind.word == "text"
    assert dataset.hashes() == {
        "train-00000.safetensors": "a" * 64, "tokenizer.json": "d" * 64,
    }
    split = dataset.splits["train"]
    assert description.PackedSplit.of(split.shards) == split
    (tmp_path / "train-00000.safetensors").write_bytes(b"123456789")
    assert dataset.missing_files(tmp_path) == [f"{tmp_path / 'tokenizer.json'} is missing"]


@pytest.mark.parametrize(("changes", "faults"), [
    ({"text": {"vocabulary": 65537}}, {("text", "vocabulary")}),
    ({"text": {"vocabulary": 65536}}, set()),
    ({"text": {"vocabulary": 65537, "token": "uint32"}}, set()),
    ({"text": {"end": 257}}, {("text", "end")}),
    ({"text": {"token": "int8"}}, {("text", "token")}),
    ({"text": None}, {("text",)}),
    ({"image": DOCUMENT["image"]}, {("image",)}),
    ({"sample": "image"}, {("image",), ("text",)}),
])
def test_a_text_that_cannot_be_is_refused_with_the_place(
    changes: dict[str, Any], faults: set[tuple[str, ...]]
) -> None:
    document = copy.deepcopy(TEXT)
    for key, value in changes.items():
        document[key] = document.get(key, {}) | value if isinstance(value, dict) else value
    if not faults:
        parsed(document)
        return
    with pytest.raises(Malformed) as caught:
        parsed(document)
    assert {one.where for one in caught.value.faults} == faults
