"""Reader `kitti-tracking`: read the official zip of left colour images without unpacking it.

The member `training/image_02/0000/000000.png` is the first frame of the first sequence. The
sequences in `testing` have no published labels; the prediction of frames needs no labels.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Literal

from pydantic import Field

from trimaran.data.contracts import Counted, LicensedFiles, Name, OfSequences, RelativePath, Size
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image, readable
from trimaran.errors import RunError
from trimaran.reporting import Reporter


class KittiSplit(Counted):
    """A split with the sequences in one folder of the zip.

    Attributes:
        frames: total number of frames of all sequences; None if the number is not checked.
    """

    folder: RelativePath
    frames: Size | None = None


class Kitti(OfSequences, LicensedFiles):
    """The data contract of the sequences of KITTI's tracking benchmark in the official zip."""

    reader: Literal["kitti-tracking"]
    splits: dict[Name, KittiSplit] = Field(min_length=1)

    def listing(self, folder: Path, unpacked: Path, reporter: Reporter) -> Listing:
        """List the sequences in the verified zip in `folder`.

        Raises:
            RunError: the file is not a zip, or has a wrong number of frames.
        """
        (name,) = self.files
        path = folder / name
        reporter.note(f"listing {path}")
        with readable(path), zipfile.ZipFile(path) as archive:
            members = {one.filename: one.file_size for one in archive.infolist()}
        splits = {
            split: _sequences(name, members, split, of.folder) for split, of in self.splits.items()
        }
        for split, of in self.splits.items():
            found = sum(len(sample.frames) for sample in splits[split])
            if of.frames is not None and found != of.frames:
                raise RunError(f"{path}: {of.folder} has {found:,} frames, not {of.frames:,}",
                               code="data-mismatch", hint="download it again")
        facts = path.stat()
        stamp = fingerprint([str(splits), str(facts.st_size), str(facts.st_mtime_ns)])
        return Listing(folder, [], splits, stamp, kind=self.kind)


def _sequences(name: str, members: dict[str, int], split: str, folder: str) -> list[Sample]:
    """Return a sample for each folder of frames below `folder` of the zip called `name`."""
    frames: dict[str, list[str]] = {}
    for member in sorted(members):
        above, _, base = member.rpartition("/")
        if above.rpartition("/")[0] == folder and is_image(base):
            frames.setdefault(above.rpartition("/")[2], []).append(member)
    return [
        Sample(f"{split}/{sequence}", (), name, 0, sum(members[one] for one in of), tuple(of))
        for sequence, of in frames.items()
    ]


MODEL = Kitti
