"""Sequences of images: the frames of one sample, in order and of one size."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from trimaran.data.formats.records import Kind
from trimaran.data.packing import pictures
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image, is_utf8
from trimaran.errors import UsageError
from trimaran.reporting import Reporter

LAYOUT = "DIR/train/SEQUENCE/*.jpg and DIR/val/SEQUENCE/*.jpg (.jpeg, .png; any names of splits)"


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

    The order of the frames is that of their names as people read them: 2 before 10.

    Raises:
        UsageError: `root` is not laid out so, or a folder has no frames.
    """
    splits: dict[str, list[Sample]] = {}
    stamps, ignored = [], []
    folders = [path for path in sorted(root.glob("*/*")) if path.is_dir() and not _hidden(path)]
    if not folders:
        raise UsageError(f"{root} has no sequences", hint=f"the layout is {LAYOUT}")
    with reporter.bar(f"listing {root}", len(folders), unit="sequences") as advance:
        for folder in folders:
            name, split = f"{folder.parent.name}/{folder.name}", folder.parent.name
            if re.fullmatch(r"[a-z0-9][a-z0-9-]*", split) is None or not is_utf8(name):
                raise UsageError(
                    f"{folder} cannot be the name of a split and a sequence",
                    hint="small letters, digits and '-' can be a split",
                )
            found = sorted(folder.iterdir(), key=lambda path: _natural(path.name))
            frames = [path for path in found if is_image(path.name) and path.is_file()]
            ignored += [f"{name}/{path.name}" for path in found if path not in frames]
            if not frames:
                raise UsageError(f"{folder} has no frames", hint=f"the layout is {LAYOUT}")
            facts = [path.stat() for path in frames]
            names = tuple(path.name for path in frames)
            splits.setdefault(split, []).append(
                Sample(name, (), name, 0, sum(fact.st_size for fact in facts), names)
            )
            stamps.append(f"{name}:" + ",".join(
                f"{one}:{fact.st_size}:{fact.st_mtime_ns}"
                for one, fact in zip(names, facts, strict=True)
            ))
            advance(1)
    kind = Kind(labels="none", sample="sequence")
    return Listing(root, [], splits, fingerprint(stamps), ignored, kind)


def _hidden(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.parent.name.startswith(".")


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key by which numbers in names count as numbers."""
    return [(int(digits or 0), text) for digits, text in re.findall(r"(\d*)(\D*)", name)]
