"""Find the files of a source folder that will not be packed, and report the images among them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

from trimaran.data.packing.listing import SHOWN, is_image
from trimaran.errors import UsageError
from trimaran.reporting import Reporter


def beside(root: Path, taken: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the files below `root` that are not in `taken`: the images, and all other files.

    Both lists are sorted. The files in a non-empty hidden folder, in an unreadable folder or behind
    a link to a folder are not listed. Instead, the second list contains the path of the folder or
    link, followed by `/`.

    Args:
        root: the source.
        taken: paths, relative to `root`, of files that are packed and of folders whose files the
            caller has listed.
    """
    above = {str(one) for name in taken for one in PurePosixPath(name).parents}
    names = sorted(_walk(root, "", taken, above))
    images = [name for name in names if is_image(PurePosixPath(name).name) and name[-1] != "/"]
    known = set(images)
    return images, [name for name in names if name not in known]


def _walk(
    root: Path, below: str, taken: Collection[str], above: Collection[str]
) -> Iterator[str]:
    try:
        with os.scandir(root / below) as found:
            entries = list(found)
    except PermissionError:
        yield f"{below}/"
        return
    if entries and below not in above and PurePosixPath(below).name.startswith("."):
        yield f"{below}/"
        return
    for entry in entries:
        name = f"{below}/{entry.name}" if below else entry.name
        if name in taken:
            continue
        if is_broken(entry) or not entry.is_dir():
            yield name
        elif entry.is_symlink() and name not in above:
            yield f"{name}/"
        else:
            yield from _walk(root, name, taken, above)


def warn(root: Path, images: list[str], why: str, reporter: Reporter) -> None:
    """If images are left out, print a warning with their number and the reason `why`."""
    if images:
        reporter.warn(f"{root}: {len(images):,} images are left out, because {why}; the first is"
                      f" {images[0]}")


def lost(entry: os.DirEntry[str]) -> str | None:
    """Return a message if `entry` is a broken link or a subfolder with images; otherwise None.

    `entry` is an entry of the folder of a class or sequence. The images in a subfolder are not
    read.
    """
    if entry.name.startswith("."):
        return None
    if is_broken(entry):
        return f"{entry.path} is a broken link"
    if not entry.is_dir():
        return None
    below = [str(Path(place, name)) for place, _, names in os.walk(entry.path)
             for name in sorted(names) if is_image(name)]
    return f"{below[0]}: {len(below):,} images are too deep in the folder" if below else None


def is_broken(entry: os.DirEntry[str]) -> bool:
    """Return True if an entry is a link to a missing file or to itself."""
    return entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110 - it is a str


def shown(folder: Path | os.DirEntry[str], place: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder that are not hidden.

    Raises:
        UsageError: an entry is a broken link; the hint contains `place`, the expected layout.
    """
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if not entry.name.startswith(".")]
    refuse_lost([f"{one.path} is a broken link" for one in found if is_broken(one)], place)
    return found


def refuse_lost(lines: list[str], place: str) -> None:
    """Raise an error if images would be left out although the user did not ask for it.

    Args:
        lines: a message for each broken link or folder because of which images would be left out.
        place: the layout of the folders from which images are read, for the hint.

    Raises:
        UsageError: `lines` is not empty.
    """
    if not lines:
        return
    more = [f"and {len(lines) - SHOWN:,} more"] if len(lines) > SHOWN else []
    raise UsageError(
        "\n".join([*lines[:SHOWN], *more]), code="images-misplaced",
        hint=f"images are read from {place}: move them there, or out of the source; repair or"
        " remove broken links (`find SOURCE -xtype l` lists them)",
    )
