"""Writers of samples with any number of classes or none, and of sequences of frames.

They follow the table in `shards.formats`, and are independent of the readers.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from written_shards import delimited, masked_crc32c, varint

Sample = tuple[Sequence[int], Sequence[bytes]]
"""The classes and the image files of a sample."""


def webdataset(stem: Path, labels: str, sample: str, samples: Sequence[Sample]) -> Path:
    path, lines = stem.with_suffix(".tar"), []
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for key, (classes, frames) in enumerate(samples):
            names = ["png"] if sample == "image" else [f"{at:06d}.png" for at in range(len(frames))]
            files = dict(zip(names, frames, strict=True))
            if labels != "none":
                files["cls"] = " ".join(map(str, classes)).encode()
            words = []
            for kind, content in files.items():
                info = tarfile.TarInfo(f"{key:08d}.{kind}")
                info.size = len(content)
                words += [kind, str(tar.offset + 512), str(len(content)), info.name]
                tar.addfile(info, io.BytesIO(content))
            lines.append(" ".join(words))
    stem.with_suffix(".idx").write_text("\n".join([f"v1.2 {len(lines)}", *lines]) + "\n")
    return path


def tfrecord(stem: Path, labels: str, sample: str, samples: Sequence[Sample]) -> Path:
    path, lines, out = stem.with_suffix(".tfrecord"), [], b""
    for key, (classes, frames) in enumerate(samples):
        packed = b"".join(map(varint, classes))
        features = {
            b"image/class/label": delimited(3, delimited(1, packed) if packed else b""),
            b"image/encoded": delimited(1, b"".join(delimited(1, frame) for frame in frames)),
            b"image/filename": delimited(1, delimited(1, b"%d.png" % key)),
        }
        if labels == "none":
            del features[b"image/class/label"]
        pairs = (delimited(1, delimited(1, k) + delimited(2, v)) for k, v in features.items())
        body = delimited(1, b"".join(pairs))
        length = struct.pack("<Q", len(body))
        crcs = [struct.pack("<I", masked_crc32c(part)) for part in (length, body)]
        frame = length + crcs[0] + body + crcs[1]
        lines.append(f"{len(out)} {len(frame)}\n")
        out += frame
    path.write_bytes(out)
    stem.with_suffix(".idx").write_text("".join(lines))
    return path


def hdf5(stem: Path, labels: str, sample: str, samples: Sequence[Sample]) -> Path:
    h5py = pytest.importorskip("h5py")
    path = stem.with_suffix(".h5")
    images = list(chain.from_iterable(frames for _, frames in samples))

    def ends(counts: list[int]) -> np.ndarray:
        return np.cumsum([0, *counts]).astype(np.int64)

    with h5py.File(path, "w") as file:
        file["images"] = np.frombuffer(b"".join(images), np.uint8)
        file["offsets"] = ends([len(image) for image in images])
        if labels != "none":
            file["labels"] = np.array([n for classes, _ in samples for n in classes], np.int64)
        if labels == "multi":
            file["label_offsets"] = ends([len(classes) for classes, _ in samples])
        if sample == "sequence":
            file["sample_offsets"] = ends([len(frames) for _, frames in samples])
    return path


WRITERS = {"webdataset": webdataset, "tfrecord": tfrecord, "hdf5": hdf5}


def packed(
    folder: Path, form: str, labels: str, sample: str, samples: Sequence[Sample], classes: int = 5
) -> Path:
    """Write `samples` as a data set with one shard in the split "train", and return its folder."""
    folder.mkdir(parents=True)
    stem = folder / "train-00000"
    path = WRITERS[form](stem, labels, sample, samples)
    content = path.read_bytes()
    entry = {"file": path.name, "samples": len(samples), "bytes": len(content),
             "sha256": hashlib.sha256(content).hexdigest()}
    if stem.with_suffix(".idx").exists():
        entry["index"] = f"{stem.name}.idx"
    image = {"channels": 1, "height": None, "width": None, "encoding": "png",
             "mean": [0.5], "std": [0.25]}
    document = {
        "schema": 1, "name": folder.name, "format": form, "labels": labels, "sample": sample,
        "classes": [f"class {n}" for n in range(classes)], "image": image,
        "splits": {"train": {"samples": len(samples), "shards": [entry]}},
    }
    (folder / "dataset.json").write_text(json.dumps(document))
    return folder
