"""Check the packed documents of a text: counts, tokenizer and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shards.description import Dataset, PackedSplit, Shard, TextFacts
from trimaran.files import sha256


def of_counts(dataset: Dataset) -> list[str]:
    """Return a fault for each split whose numbers differ from the sums over its shards.

    The numbers of a split are its tokens and its bytes of text, as listed in `dataset.json`.
    """
    found = []
    for name, split in dataset.splits.items() if dataset.text else ():
        sums = PackedSplit.of(split.shards)
        if None in (sums.tokens, sums.text_bytes) or (
            (split.tokens, split.text_bytes) != (sums.tokens, sums.text_bytes)
        ):
            found.append(f"split {name}: its shards do not add up to its tokens and bytes of text")
    return found


def of_tokenizer(folder: Path, text: TextFacts) -> list[str]:
    """Return a fault if the tokenizer file in `folder` does not have the listed SHA-256.

    A missing file is not reported, because the check of the file sizes reports it.

    Raises:
        OSError: the tokenizer cannot be read.
    """
    path, listed = folder / text.tokenizer.file, text.tokenizer.sha256
    digest = sha256(path) if path.is_file() else listed
    return [] if digest == listed else [
        f"{path} is not the tokenizer of these tokens: it has the SHA-256 {digest}, {listed} is"
        " listed"
    ]


def of_shard(path: Path, shard: Shard, text: TextFacts) -> Iterator[str]:
    """Yield the faults of all tokens of the shard at `path`, which `shard` describes."""
    from shards.formats import tokens  # NumPy is slow to import

    for fault in tokens.scan(path, shard, text):
        yield f"{path} {fault}"
