"""Reader `zip`: images in folders of one zip, such as a wheel; a folder says what they show."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

from trimaran.data.contracts import Zipped
from trimaran.data.packing.listing import Listing, Sample, fingerprint, is_image, readable
from trimaran.errors import RunError


def listing(contract: Zipped, raw: Path) -> Listing:
    """List the images of `contract`, whose verified zip is in `raw`.

    Raises:
        RunError: it is no zip, a member of it is damaged, or a split has not as many images as
            the contract says.
    """
    ((name, content),) = contract.files.items()
    number = {one: at for at, one in enumerate(contract.classes)}
    splits: dict[str, list[Sample]] = {split: [] for split in contract.splits}
    ignored: list[str] = []
    with readable(raw / name), zipfile.ZipFile(raw / name) as archive:
        for member in sorted(archive.infolist(), key=lambda one: one.filename):
            folder, _, base = member.filename.rpartition("/")
            if folder not in contract.folders or not base:
                continue
            if not is_image(base):
                ignored.append(f"{name}: {member.filename}")
                continue
            split = _split(contract, archive.read(member))
            labels = tuple(sorted(number[one] for one in contract.folders[folder]))
            splits[split].append(Sample(
                f"{split}/{folder.rpartition('/')[2]}/{base}", labels, name, 0,
                member.file_size, (member.filename,),
            ))
    for split, wanted in contract.splits.items():
        if len(splits[split]) != wanted.samples:
            raise RunError(f"{raw / name}: split {split} has {len(splits[split]):,} images, not"
                           f" {wanted.samples:,}")
    return Listing(raw, contract.classes, splits, fingerprint([content.sha256, str(splits)]),
                   ignored, kind=contract.kind, contents={name: content.sha256})


def _split(contract: Zipped, content: bytes) -> str:
    """Return the split that an image is in, by its content."""
    at = int(hashlib.sha256(content).hexdigest(), 16) % 100
    return next(name for name, split in contract.splits.items()
                if split.percent[0] <= at < split.percent[1])
