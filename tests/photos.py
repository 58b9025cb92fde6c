"""Create small image folders, and tiny versions of the official tar files of ImageNet."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from PIL import Image

CLASSES = ("cat", "dog", "eel")
COUNTS = {"train": 14, "val": 5}
MAGIC = bytes.fromhex("0a23d7ce")  # magic number of RecordIO, as stored in a file


def jpeg(number: int, size: tuple[int, int] = (24, 16), mode: str = "RGB") -> bytes:
    """Return a JPEG that differs for each number."""
    image = Image.new("RGB", size, (number * 37 % 256, number * 91 % 256, 60))
    image.putpixel((number % size[0], 3), (255, 255, 255))
    out = io.BytesIO()
    image.convert(mode).save(out, "JPEG", quality=90)
    return out.getvalue()


def png(number: int, size: tuple[int, int] = (24, 16)) -> bytes:
    """Return a PNG."""
    out = io.BytesIO()
    Image.new("RGB", size, (number * 37 % 256, 5, 60)).save(out, "PNG")
    return out.getvalue()


def with_magic() -> bytes:
    """Return a JPEG with RecordIO's magic number at several offsets, aligned and unaligned."""
    image = jpeg(99)
    tail = MAGIC + b"x" + MAGIC + b"xyz" + MAGIC + MAGIC + b"end"
    return image + b"\0" * (-len(image) % 4) + tail


def folder(root: Path) -> Path:
    """Fill the new folder `root` with splits, classes and images; return it."""
    number = 0
    for split, count in COUNTS.items():
        for at in range(count):
            number += 1
            place = root / split / CLASSES[at % 3]
            place.mkdir(parents=True, exist_ok=True)
            # A name with a non-ASCII letter, and a suffix in capitals.
            (place / f"{'ü' * (at == 4)}{number}.{'JPEG' if at % 2 else 'jpg'}").write_bytes(
                with_magic() if number == 3 else jpeg(number)
            )
    return root


def contents(root: Path) -> dict[str, list[tuple[int, bytes]]]:
    """Return split -> (label, bytes) of each image of the folder, sorted by name."""
    classes = sorted({path.name for path in root.glob("*/*")})
    return {
        split.name: [
            (classes.index(path.parent.name), path.read_bytes())
            for path in sorted(split.glob("*/*"), key=lambda path: (path.parent.name, path.name))
        ]
        for split in sorted(root.iterdir())
    }


SYNSETS = {"n03": "eel", "n01": "cat", "n02": "dog"}
"""Synset -> class, in the order of ILSVRC numbers, which differs from the alphabetical order."""

TRUTH = (2, 1, 3, 3)


def tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    """Return a tar file with these members (name -> content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def official_tars(root: Path, checkout: Path) -> Path:
    """Write small versions of ImageNet's three official tar files into the new folder `root`.

    The list of synsets is written into `checkout`. The result is `root`.
    """
    root.mkdir()
    lines = "".join(f"{number} {name}\n" for number, name in SYNSETS.items())
    (checkout / "recipes/data/imagenet-2012-synsets.txt").write_text(lines)
    inner = {
        f"{wnid}.tar": tar({f"{wnid}_{at}.JPEG": jpeg(10 * label + at) for at in (2, 1, 0)})
        for label, wnid in enumerate(sorted(SYNSETS))
    }
    (root / "ILSVRC2012_img_train.tar").write_bytes(tar(dict(reversed(inner.items()))))
    val = {f"ILSVRC2012_val_{at:08d}.JPEG": jpeg(100 + at) for at in range(len(TRUTH), 0, -1)}
    (root / "ILSVRC2012_img_val.tar").write_bytes(tar(val))
    truth = "".join(f"{number}\n" for number in TRUTH).encode()
    name = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
    (root / "ILSVRC2012_devkit_t12.tar.gz").write_bytes(tar({name: truth}, "w:gz"))
    return root
