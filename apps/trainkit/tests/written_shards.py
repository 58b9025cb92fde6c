"""Writers of every format; they follow the public specifications, independently of the readers."""

from __future__ import annotations

import hashlib
import json
import shutil
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from trainkit.data.dataset import open_dataset

PER_SHARD = 40
RECORDIO_MAGIC = struct.pack("<I", 0xCED7230A)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def delimited(number: int, content: bytes) -> bytes:
    """Return a length-delimited field of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def masked_crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def example(image: bytes, label: int, name: str) -> bytes:
    """Return a serialized tf.train.Example with an image, its class and its name."""
    integers = delimited(3, delimited(1, varint(label)))
    features = {
        b"image/class/label": integers,
        b"image/encoded": delimited(1, delimited(1, image)),
        b"image/filename": delimited(1, delimited(1, name.encode())),
    }
    pairs = (delimited(1, delimited(1, k) + delimited(2, v)) for k, v in features.items())
    return delimited(1, b"".join(pairs))


def tfrecord(stem: Path, images: Sequence[bytes], labels: Sequence[int]) -> Path:
    path, lines, out = stem.with_suffix(".tfrecord"), [], b""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        body = example(image, label, f"{number}.png")
        length = struct.pack("<Q", len(body))
        crcs = [struct.pack("<I", masked_crc32c(part)) for part in (length, body)]
        frame = length + crcs[0] + body + crcs[1]
        lines.append(f"{len(out)} {len(frame)}\n")
        out += frame
    path.write_bytes(out)
    stem.with_suffix(".idx").write_text("".join(lines))
    return path


def recordio_frames(payload: bytes) -> bytes:
    """Return a payload as a RecordIO record of dmlc-core.

    The payload is split at magic numbers in aligned positions, and padded to 4 bytes.
    """
    places = [i for i in range(0, len(payload) - 3, 4) if payload[i : i + 4] == RECORDIO_MAGIC]
    cuts = zip([0, *(p + 4 for p in places)], [*places, len(payload)], strict=True)
    parts = [payload[a:b] for a, b in cuts]
    out = b""
    for number, part in enumerate(parts):
        flag = 0 if len(parts) == 1 else 1 if number == 0 else 3 if number == len(parts) - 1 else 2
        out += RECORDIO_MAGIC + struct.pack("<I", flag << 29 | len(part)) + part
        out += b"\0" * (-len(out) % 4)
    return out


def recordio(stem: Path, images: Sequence[bytes], labels: Sequence[int]) -> Path:
    path, lines, out = stem.with_suffix(".rec"), [], b""
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        lines.append(f"{number}\t{len(out)}\n")
        out += recordio_frames(struct.pack("<IfQQ", 0, label, number, 0) + image)
    path.write_bytes(out)
    stem.with_suffix(".idx").write_text("".join(lines))
    return path


def datum(image: bytes, label: int) -> bytes:
    """Return a Caffe Datum, which contains its label even if the label is 0, as in proto2."""
    return delimited(4, image) + varint(5 << 3) + varint(label) + varint(7 << 3) + varint(1)


def lmdb_shard(stem: Path, images: Sequence[bytes], labels: Sequence[int]) -> Path:
    lmdb = pytest.importorskip("lmdb")
    folder = stem.with_suffix(".lmdb")
    with (
        lmdb.open(str(folder), map_size=1 << 26, lock=False) as database,
        database.begin(write=True) as transaction,
    ):
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            transaction.put(b"%08d" % number, datum(image, label))
    return folder / "data.mdb"


def hdf5(stem: Path, images: Sequence[bytes], labels: Sequence[int]) -> Path:
    h5py = pytest.importorskip("h5py")
    path = stem.with_suffix(".h5")
    with h5py.File(path, "w") as file:
        file["images"] = np.frombuffer(b"".join(images), np.uint8)
        file["offsets"] = np.cumsum([0, *map(len, images)]).astype(np.int64)
        file["labels"] = np.array(labels, np.int64)
    return path


WRITERS = {"tfrecord": tfrecord, "recordio": recordio, "lmdb": lmdb_shard, "hdf5": hdf5}
FORMATS = ["webdataset", *WRITERS]


def converted(source: Path, folder: Path, kind: str, samples: dict) -> Path:
    """Write the data set `source` to `folder` in the format `kind`; return `folder`.

    `samples` is a dict with its content: name of a split -> (image files, class numbers).
    """
    if kind == "webdataset":
        return Path(shutil.copytree(source, folder))
    folder.mkdir(parents=True)
    document = json.loads((source / "dataset.json").read_text())
    document["format"] = kind
    for split, (images, labels) in samples.items():
        shards = document["splits"][split]["shards"] = []
        for start in range(0, len(images), PER_SHARD):
            chosen = slice(start, start + PER_SHARD)
            stem = folder / f"{split}-{start // PER_SHARD:05d}"
            path = WRITERS[kind](stem, images[chosen], labels[chosen])
            content = path.read_bytes()
            entry = {
                "file": str(path.relative_to(folder)),
                "samples": len(images[chosen]),
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            if stem.with_suffix(".idx").exists():
                entry["index"] = f"{stem.name}.idx"
            shards.append(entry)
    (folder / "dataset.json").write_text(json.dumps(document))
    return folder


def image_folder(folder: Path, samples: dict, classes: int) -> Path:
    """Write `samples` as image files in one folder per split and class, and return `folder`.

    Sorted by path, the files have the order of the classes, then the order of the samples.
    """
    for split, (images, labels) in samples.items():
        for name in range(classes):
            (folder / split / f"class {name}").mkdir(parents=True)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            ending = "png" if image.startswith(b"\x89PNG") else "JPEG"
            path = folder / split / f"class {label}" / f"{number:05d}.{ending}"
            path.write_bytes(image)
    return folder


def samples_of(folder: Path) -> dict:
    dataset = open_dataset(folder)
    found = {}
    for split in dataset.splits:
        records = dataset.records(split)
        numbers = range(len(records))
        images = [records.encoded(n).tobytes() for n in numbers]
        found[split] = (images, [records.label(n) for n in numbers])
    return found


Convert = Callable[[Path, str], Path]


@pytest.fixture(scope="session")
def convert(tmp_path_factory: pytest.TempPathFactory) -> Convert:
    """Return a function that converts a data set (its folder) to a format; it reuses results."""
    made: dict[tuple[Path, str], Path] = {}

    def run(source: Path, kind: str) -> Path:
        if (source, kind) not in made:
            folder = tmp_path_factory.mktemp(kind) / source.name
            made[source, kind] = converted(source, folder, kind, samples_of(source))
        return made[source, kind]

    return run


def list_checksum(folder: Path, index: Path) -> None:
    """Write the checksum of the file `index` into `dataset.json`, as `trimaran data pack` does."""
    document = json.loads((folder / "dataset.json").read_text())
    for split in document["splits"].values():
        for entry in split["shards"]:
            if entry.get("index") == index.name:
                entry["index_sha256"] = hashlib.sha256(index.read_bytes()).hexdigest()
    (folder / "dataset.json").write_text(json.dumps(document))
