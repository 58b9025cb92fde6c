"""Reader `video`: sequences that are parts of videos, as the contract cuts them."""

from __future__ import annotations

from pathlib import Path

from trimaran.data.contracts import Videos
from trimaran.data.packing.listing import Listing, Sample, fingerprint
from trimaran.data.packing.videos import Clip


def listing(contract: Videos, raw: Path) -> Listing:
    """List the sequences of `contract`, whose verified videos are in `raw`.

    Each is a sample of its own, so that no window over its frames leaves it for another split.
    """
    splits = {
        split: [
            Sample(f"{split}/{name}", (), clip.video, 0, contract.files[clip.video].size,
                   clip=Clip(*clip.frames, clip.box))
            for name, clip in sorted(of.sequences.items())
        ]
        for split, of in contract.splits.items()
    }
    contents = {name: content.sha256 for name, content in contract.files.items()}
    stamps = [*map(str, splits.values()), *contents.values()]
    return Listing(raw, [], splits, fingerprint(stamps), kind=contract.kind, contents=contents)
