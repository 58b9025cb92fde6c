"""Check the packed documents of a text: counts, tokenizer and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from shards.description import Dataset, PackedSplit, Shard, TextFacts
from trimaran.files import sha256


def of_counts(dataset: Dataset) -> list[str]:
    """Return one line for each split whose totals in `dataset.json` are not the sums of its shards.

    The totals are the number of tokens and the size of the text in bytes.
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
    """Return a list with one fault if the tokenizer file does not have the listed SHA-256.

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
    """Check all tokens of the shard at `path`, which `shard` describes, and yield each fault."""
    from shards.formats import tokens  # NumPy is slow to import

    for fault in tokens.scan(path, shard, text):
        yield f"{path} {fault}"
