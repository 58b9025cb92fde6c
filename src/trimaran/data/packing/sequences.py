"""Sequences of images: the frames of one sample, in order and of one size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from trimaran.data.kinds import Kind
from trimaran.data.packing import pictures, videos
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image, is_utf8
from trimaran.data.packing.videos import Clip
from trimaran.errors import UsageError
from trimaran.reporting import Reporter

LAYOUT = (
    "DIR/train/SEQUENCE/*.jpg or DIR/train/SEQUENCE.mp4, DIR/val/... alike (.jpeg, .png; .avi,"
    " .mkv, .mov, .webm; any names of splits)"
)
KIND = Kind(labels="none", sample="sequence")


def each(frames: Sequence[bytes], do: Callable[[bytes], bytes]) -> tuple[bytes, ...]:
    """Return what `do` makes of every frame of a sample, or of its one image.

    Raises:
        BadImage: of `do`, or because a frame has another size than the first; it says which.
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
                f"frame {number} has {size[0]}x{size[1]} pixels, the first one"
                f" {first[0]}x{first[1]}"
            )
    return tuple(found)


def listing(root: Path, reporter: Reporter) -> Listing:
    """List the folders `SPLIT/SEQUENCE` of `root`: each is one sample, its images the frames.

    A video `SPLIT/SEQUENCE.mp4` is one, too.

    The order of the frames is that of their names as people read them: 2 before 10.

    Raises:
        UsageError: `root` is not laid out so, or a folder has no frames.
    """
    splits: dict[str, list[Sample]] = {}
    stamps, ignored = [], []
    found = [path for path in sorted(root.glob("*/*")) if not _hidden(path) and
             (path.is_dir() or path.suffix.lower() in videos.ENDINGS)]
    if not found:
        raise UsageError(f"{root} has no sequences", hint=f"the layout is {LAYOUT}")
    with reporter.bar(f"listing {root}", len(found), unit="sequences") as advance:
        for path in found:
            name, split = f"{path.parent.name}/{path.name}", path.parent.name
            if re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None or not is_utf8(name):
                raise UsageError(
                    f"{path} cannot be the name of a split and a sequence",
                    hint="small letters, digits and '-' can be a split",
                )
            sample, stamp, others = _video(path, name) if path.is_file() else _folder(path, name)
            splits.setdefault(split, []).append(sample)
            stamps.append(stamp)
            ignored += others
            advance(1)
    return Listing(root, [], splits, fingerprint(stamps), ignored, KIND)


def _video(path: Path, name: str) -> tuple[Sample, str, list[str]]:
    facts = path.stat()
    stamp = f"{name}:{facts.st_size}:{facts.st_mtime_ns}"
    return Sample(name, (), name, 0, facts.st_size, clip=Clip()), stamp, []


def _folder(folder: Path, name: str) -> tuple[Sample, str, list[str]]:
    """Return the sample of a folder of frames, its stamp, and what else is in it."""
    found = sorted(folder.iterdir(), key=lambda path: _natural(path.name))
    frames = [path for path in found if is_image(path.name) and path.is_file()]
    if not frames:
        raise UsageError(f"{folder} has no frames", hint=f"the layout is {LAYOUT}")
    facts = [path.stat() for path in frames]
    names = tuple(path.name for path in frames)
    size = sum(fact.st_size for fact in facts)
    stamp = f"{name}:" + ",".join(
        f"{one}:{fact.st_size}:{fact.st_mtime_ns}" for one, fact in zip(names, facts, strict=True)
    )
    ignored = [f"{name}/{path.name}" for path in found if path not in frames]
    return Sample(name, (), name, 0, size, names), stamp, ignored


def video_frames(
    path: Path, clip: Clip, resize: pictures.Resize | None, quality: int
) -> tuple[bytes, ...]:
    """Return the frames of a video, scaled if so wished, as JPEG files.

    Raises:
        BadImage: it cannot be decoded; see `videos.frames`.
    """
    found = []
    for image in videos.frames(path, clip):
        size = image.size if resize is None else pictures.target(image.size, resize)
        picture = image if size == image.size else image.resize(size, pictures.FILTER)
        found.append(pictures.encoded(picture, quality))
    return tuple(found)


def _hidden(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.parent.name.startswith(".")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which numbers in names count as numbers."""
    return [(int(digits or 0), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]
