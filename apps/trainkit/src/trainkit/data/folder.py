"""Read a folder of images that is not packed: DIR/train/CLASS/*.jpg and DIR/val/CLASS/*.jpg.

The classes are the sorted names of the folders in `train`. The files are listed once, when the
folder is opened. Each image is a separate file, which a parallel file system reads slowly.
Therefore a data set that is used more than once should be packed.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from shards.formats.records import Bytes
from shards.picturefacts import BadImage
from trainkit.data.bad import UndecodableError
from trainkit.exits import DataError

FOLDER: Final = "folder"
"""Format name of a folder of images that is not packed; no `dataset.json` contains this name."""

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".pnm", ".ppm", ".pgm")
SPLITS = ("train", "val", "test")


@dataclass(frozen=True)
class Images:
    """The images of one split, described like a shard in `dataset.json`.

    Attributes:
        file: path of the split's folder (not of a file), relative to the folder of the data set.
        images: (class number, path relative to `file`) of each image.
        sha256: checksum of the paths; the contents are not included.
    """

    file: str
    images: list[tuple[int, str]]
    sha256: str


class ImageFolder:
    """The images of one split, with the interface of `shards.formats.records.Reader`."""

    def __init__(self, folder: Path, entry: Images) -> None:
        self.path = folder / entry.file
        self._images = entry.images
        try:
            from shards import picturefile  # not installed in some container images
        except ModuleNotFoundError as error:
            raise DataError(
                f"{self.path}: a folder that is not packed needs the Python package {error.name}, "
                "which is not installed here; `trimaran data pack` packs it",
                code="library-missing",
            ) from error
        self._pictures = picturefile

    def __len__(self) -> int:
        return len(self._images)

    def frames(self, number: int) -> list[Bytes]:
        """Return a list with the bytes of one image file.

        If decoders could read the file in different ways, the bytes are a replacement that all
        decoders read alike, as `trimaran data pack` writes it.

        Raises:
            DataError: the file cannot be read.
            UndecodableError: the file is not an image.
        """
        path = self.path / self._images[number][1]
        try:
            return [np.frombuffer(self._pictures.plain(path.read_bytes()), np.uint8)]
        except OSError as error:
            raise DataError(
                f"{path} cannot be read: {error.strerror}", code="file-unreadable"
            ) from error
        except BadImage as error:
            raise UndecodableError(str(path), str(error)) from error

    def labels(self, number: int) -> list[int]:
        """Return a list with the class number of an image, which its folder determines."""
        return [self._images[number][0]]

    def describe(self, number: int) -> str:
        """Return the path of the image file."""
        return str(self.path / self._images[number][1])


def list_splits(folder: Path) -> tuple[tuple[str, ...], dict[str, list[Images]]]:
    """Return the names of the classes, and the images of each split.

    Raises:
        DataError: `train` has no class, or another split has a class that `train` does not have.
    """
    splits: dict[str, list[Images]] = {}
    classes = _names(folder / "train", folders=True)
    if not classes:
        raise DataError(
            f"{folder / 'train'} has no folders of images, one for each class", code="data-missing"
        )
    numbers = {name: number for number, name in enumerate(classes)}
    for split in SPLITS:
        place = folder / split
        if not place.is_dir():
            continue
        images: list[tuple[int, str]] = []
        for name in _names(place, folders=True):
            if name not in numbers:
                raise DataError(
                    f"{place / name}: a class that {folder / 'train'} does not have",
                    code="class-unknown",
                )
            files = _names(place / name, folders=False)
            images += [(numbers[name], f"{name}/{f}") for f in files if is_image(f)]
        text = "\0".join(path for _, path in images)
        checksum = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
        splits[split] = [Images(split, images, checksum)]
    return tuple(classes), splits


def is_image(name: str) -> bool:
    """Return whether a file name has the extension of an image."""
    return name.lower().endswith(SUFFIXES)


def _names(place: Path, *, folders: bool) -> list[str]:
    """Return the sorted names of the folders, or of the files, in `place` that are not hidden.

    Operating systems and notebooks put hidden files into folders of images. `trimaran data pack`
    skips them, too.
    """
    try:
        with os.scandir(place) as entries:
            return sorted(
                entry.name
                for entry in entries
                if entry.is_dir() == folders and not entry.name.startswith(".")
            )
    except OSError as error:
        raise DataError(
            f"{place} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
