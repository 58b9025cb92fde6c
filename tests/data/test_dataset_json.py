"""The tool reads `dataset.json` strictly: an error names the line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from refusals import refused
from shards.kinds import FormatName, Kind
from trimaran.data import dataset_json

DOCUMENT = {
    "schema": 1, "name": "a", "format": "webdataset", "classes": ["b"],
    "image": {"channels": 3, "height": None, "width": None, "encoding": "jpg",
              "mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]},
    "splits": {"train": {"samples": 1, "shards": [
        {"file": "a.tar", "samples": 1, "bytes": 1, "sha256": "a" * 64}
    ]}},
}


def test_every_fault_has_its_line_its_key_and_what_was_found(tmp_path: Path) -> None:
    text = json.dumps(DOCUMENT, indent=1)
    text = text.replace('"a.tar"', '"../a"').replace('"b"', "5").replace('"std"', '"sdt"')
    path = tmp_path / "dataset.json"
    path.write_text(text)
    with refused("file-invalid") as caught:
        dataset_json.read(tmp_path)

    def line(word: str) -> int:
        return 1 + next(at for at, one in enumerate(text.splitlines()) if word in one)

    assert str(caught.value).splitlines() == [
        f"{path}:{line('  5')}: classes.0: is not text (found: 5)",
        f"{path}:{line('image')}: image.std: is missing",
        f"{path}:{line('sdt')}: image.sdt: unknown key (allowed: channels, height, width, encoding,"
        " mean, std)",
        f"{path}:{line('../a')}: splits.train.shards.0.file: must be a relative path without '.',"
        " '..' and '//' (found: '../a')",
    ]


def test_what_is_written_is_read_again_and_has_no_defaults(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").write_text(json.dumps(DOCUMENT))
    dataset = dataset_json.read(tmp_path)
    dataset_json.write(tmp_path, dataset)
    assert json.loads((tmp_path / "dataset.json").read_text()) == DOCUMENT
    assert dataset_json.read(tmp_path) == dataset


@pytest.mark.parametrize("name", ["recordio", "lmdb"])
@pytest.mark.parametrize("kind", [Kind("multi"), Kind("none", "sequence")])
def test_a_format_without_a_place_for_such_samples_says_so(name: FormatName, kind: Kind) -> None:
    with refused("format-unsuitable", name):
        dataset_json.check_format(name, kind)
    dataset_json.check_format(name, Kind())
