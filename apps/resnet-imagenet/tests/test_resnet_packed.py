"""NVIDIA DALI's own readers (and h5py) read what `trimaran data pack` writes.

The shards in data/packed were packed from data/photos; a test of the tool packs them again and
compares every byte.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import nvidia.dali.tfrecord as tfrecord
import pytest
from nvidia.dali import fn, pipeline_def

from trainkit.testing.refusals import assert_reported

DATA = Path(__file__).with_name("data")
CLASSES = ["cat", "dog", "eel"]


def webdataset(file: str, index: str) -> Any:
    return fn.readers.webdataset(paths=[file], index_paths=[index], ext=["jpg", "cls"])


def tf_records(file: str, index: str) -> Any:
    features = {
        "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "image/class/label": tfrecord.FixedLenFeature([1], tfrecord.int64, -1),
    }
    found = fn.readers.tfrecord(path=[file], index_path=[index], features=features)
    return found["image/encoded"], found["image/class/label"]


def recordio(file: str, index: str) -> Any:
    return fn.readers.mxnet(path=[file], index_path=[index])


def lmdb(file: str, index: str) -> Any:
    return fn.readers.caffe(path=str(Path(file).parent))


READERS = {"webdataset": webdataset, "tfrecord": tf_records, "recordio": recordio, "lmdb": lmdb}


def by_dali(kind: str, folder: Path, shard: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Return the class and the encoded image of each sample of a shard, as DALI reads them."""
    count = shard["samples"]
    file, index = str(folder / shard["file"]), str(folder / shard.get("index", ""))

    @pipeline_def(batch_size=count, num_threads=1, device_id=None)
    def pipeline() -> Any:
        return tuple(READERS[kind](file, index))

    images, labels = pipeline().run()
    found = []
    for at in range(count):
        label = np.asarray(labels.at(at)).ravel()
        number = int(label.tobytes()) if kind == "webdataset" else int(label[0])
        found.append((number, np.asarray(images.at(at)).tobytes()))
    return found


def by_h5py(folder: Path, shard: dict[str, Any]) -> list[tuple[int, bytes]]:
    with h5py.File(folder / shard["file"]) as file:
        offsets = file["offsets"][:]
        return [
            (int(label), file["images"][start:end].tobytes())
            for label, start, end in zip(file["labels"], offsets[:-1], offsets[1:], strict=True)
        ]


@pytest.mark.parametrize("kind", [*READERS, "hdf5"])
def test_packed_shards_hold_the_images_of_the_folder(kind: str) -> None:
    folder = DATA / "packed" / kind
    document = json.loads((folder / "dataset.json").read_text())
    assert document["classes"] == CLASSES
    for split, count in (("train", 6), ("val", 2)):
        expected = [
            (CLASSES.index(path.parent.name), path.read_bytes())
            for path in (DATA / "photos" / split).glob("*/*.jpg")
        ]
        shards = document["splits"][split]["shards"]
        found = [
            sample
            for shard in shards
            for sample in (
                by_h5py(folder, shard) if kind == "hdf5" else by_dali(kind, folder, shard)
            )
        ]
        assert len(found) == count
        assert sorted(found) == sorted(expected)


@pytest.mark.slow
def test_a_database_cut_in_half_is_named_and_no_bus_error(tmp_path: Path) -> None:
    """The file dataset.json states the truncated size, but LMDB maps the original length.

    The training must report the damage and end with exit code 3, and not die of SIGBUS.
    """
    folder = shutil.copytree(DATA / "packed" / "lmdb", tmp_path / "data")
    document = json.loads((folder / "dataset.json").read_text())
    entry = document["splits"]["train"]["shards"][0]
    shard = folder / entry["file"]
    entry["bytes"] = shard.stat().st_size // 2
    os.truncate(shard, entry["bytes"])
    (folder / "dataset.json").write_text(json.dumps(document))
    done = subprocess.run(
        [sys.executable, "-m", "resnet_imagenet", "train", "--data", folder, "--out",
         tmp_path / "run", "--model", "resnet20", "--epochs", "1"],
        capture_output=True, text=True, check=False,
    )
    assert done.returncode == 3, done.stderr
    assert_reported(done.stderr, "data-damaged", f"shard {shard} ", "LMDB")
    assert not (tmp_path / "run").exists()
