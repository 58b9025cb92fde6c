"""List and convert sequences: a sequence is one sample, with ordered frames of one size."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from shards.kinds import Kind
from trimaran.data.packing import leftovers, pictures, videos
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image, is_utf8
from trimaran.data.packing.videos import Clip
from trimaran.errors import UsageError
from trimaran.reporting import Reporter

LAYOUT = (
    "DIR/train/SEQUENCE/*.jpg or DIR/train/SEQUENCE.mp4, DIR/val/... alike (.jpeg, .png; .avi,"
    " .mkv, .mov, .webm; any names of splits)"
)
PLACE = "SPLIT/SEQUENCE"
KIND = Kind(labels="none", sample="sequence")


def each(frames: Sequence[bytes], do: Callable[[bytes], bytes]) -> tuple[bytes, ...]:
    """Apply `do` to each image file of one sample, and return the results.

    `frames` contains all frames of a sequence; for a sample that is a single image, it contains
    this image.

    Raises:
        BadImage: `do` raises this error, or two frames have different sizes; the message contains
            the number of the frame.
    """
    found: list[bytes] = []
    first: tuple[int, int] | None = None
    for number, frame in enumerate(frames):
        try:
            found.append(do(frame))
            size = pictures.size(frame) if len(frames) > 1 else None
        except pictures.BadImage as error:
            if len(frames) == 1:
                raise
            raise pictures.BadImage(f"frame {number} {error}") from error
        first = first or size
        if first is not None and size is not None and size != first:
            raise pictures.BadImage(
                f"frame {number} has {size[0]}x{size[1]} pixels, the first frame"
                f" {first[0]}x{first[1]}"
            )
    return tuple(found)


def listing(root: Path, reporter: Reporter) -> Listing:
    """List the sequences below `root`: each folder `SPLIT/SEQUENCE` with images is one sample.

    A video `SPLIT/SEQUENCE.mp4` is one sample, too. The reporter gets a warning about images that
    are in no sequence. All other files, including videos of other formats, are listed in `ignored`.

    The frames are in the natural order of their names: 2 comes before 10.

    Raises:
        UsageError: `root` has another layout, a folder has no frames, or frames would be left
            out, because a link is broken or because they are in a subfolder.
    """
    splits: dict[str, list[Sample]] = {}
    stamps, ignored = [], []
    found = _found(root)
    if not found:
        raise UsageError(f"{root} contains no sequences", code="layout-invalid",
                         hint=f"the layout is {LAYOUT}")
    with reporter.bar(f"listing {root}", len(found), unit="sequences") as advance:
        for path in found:
            name, split = f"{path.parent.name}/{path.name}", path.parent.name
            if re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None or not is_utf8(name):
                raise UsageError(
                    f"{path}: invalid name of a split and a sequence", code="name-invalid",
                    hint="use lower-case letters, digits and '-' for a split, and UTF-8",
                )
            sample, stamp, others = _video(path, name) if path.is_file() else _folder(path, name)
            splits.setdefault(split, []).append(sample)
            stamps.append(stamp)
            ignored += others
            advance(1)
    images, others = leftovers.beside(root, {one.name for of in splits.values() for one in of})
    leftovers.warn(root, images, "they are in no sequence", reporter)
    return Listing(root, [], splits, fingerprint(stamps), sorted([*ignored, *others]), KIND)


def _found(root: Path) -> list[Path]:
    """Return the folders and videos that are sequences, sorted."""
    if not root.is_dir():
        raise UsageError(f"{root} is not a folder", code="layout-invalid",
                         hint=f"the layout is {LAYOUT}")
    return sorted(
        Path(entry.path) for split in leftovers.shown(root, PLACE) if split.is_dir()
        for entry in leftovers.shown(split, PLACE)
        if entry.is_dir() or (entry.is_file() and Path(entry).suffix.lower() in videos.ENDINGS)
    )


def _video(path: Path, name: str) -> tuple[Sample, str, list[str]]:
    facts = path.stat()
    stamp = f"{name}:{facts.st_size}:{facts.st_mtime_ns}"
    return Sample(name, (), name, 0, facts.st_size, clip=Clip()), stamp, []


def _folder(folder: Path, name: str) -> tuple[Sample, str, list[str]]:
    """Return the sample of a folder of frames, a stamp, and the names of the folder's other files.

    The stamp is a text with the name, size and modification time of each frame, by which a changed
    file is recognized.
    """
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: _natural(entry.name))
    leftovers.refuse_lost([fault for entry in found if (fault := leftovers.lost(entry))], PLACE)
    frames = [entry for entry in found if is_image(entry.name) and entry.is_file()]
    if not frames:
        raise UsageError(f"{folder} contains no frames", code="layout-invalid",
                         hint=f"the layout is {LAYOUT}")
    facts = [entry.stat() for entry in frames]
    names = tuple(entry.name for entry in frames)
    size = sum(fact.st_size for fact in facts)
    stamp = f"{name}:" + ",".join(
        f"{one}:{fact.st_size}:{fact.st_mtime_ns}" for one, fact in zip(names, facts, strict=True)
    )
    known = set(names)
    ignored = [f"{name}/{entry.name}" for entry in found if entry.name not in known]
    return Sample(name, (), name, 0, size, names), stamp, ignored


def video_frames(
    path: Path, clip: Clip, resize: pictures.Resize | None, quality: int
) -> tuple[bytes, ...]:
    """Return the frames of a video as JPEG files, scaled if `resize` is not None.

    Raises:
        BadImage: the video cannot be decoded; see `videos.frames`.
    """
    found = []
    for image in videos.frames(path, clip):
        size = image.size if resize is None else pictures.target(image.size, resize)
        picture = image if size == image.size else image.resize(size, pictures.FILTER)
        found.append(pictures.encoded(picture, quality))
    return tuple(found)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sorting key that compares the numbers in a name by value."""
    return [(int(digits or 0), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]
