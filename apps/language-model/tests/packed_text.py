"""Write small packed texts for tests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from language_model.data import synthetic
from shards import description
from shards.formats import tokens

VOCABULARY, END = 257, 256
Documents = Sequence[Sequence[int]]


def pack(folder: Path, splits: Mapping[str, Sequence[Documents]]) -> Path:
    """Write a text with the documents of the shards of each split; each token is one byte.

    Each document gets the token `END` at its end.
    """
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text('{"model": "bytes"}')
    packed = {}
    for name, shards in splits.items():
        written = [
            tokens.write(
                folder, f"{name}-{number:05d}", "uint16",
                [np.array([*document, END], np.uint16) for document in documents],
                sum(map(len, documents)),
            )
            for number, documents in enumerate(shards)
        ]
        packed[name] = description.PackedSplit.of(written)
    checksum = hashlib.sha256((folder / "tokenizer.json").read_bytes()).hexdigest()
    text = description.TextFacts(
        token="uint16", vocabulary=VOCABULARY, end=END,  # noqa: S106 - a type, no secret
        documents="blank-lines", held_out="a test",
        tokenizer=description.Tokenizer(file="tokenizer.json", sha256=checksum, made="bytes"),
    )
    dataset = description.Dataset(
        name="small", format="tokens", classes=[], labels="none", sample="text", text=text,
        splits=packed,
    )
    (folder / description.DATASET).write_text(description.text(dataset))
    return folder


def small(folder: Path) -> Path:
    """Write a text that can be learned: two shards of 40 documents, and 6 documents to evaluate."""
    def documents(split: str, count: int) -> list[list[int]]:
        found = synthetic(split, count * 200, END).shards[0].tokens
        return [part.tolist() for part in np.split(found, count)]

    train = documents("train", 80)
    return pack(folder, {"train": [train[:40], train[40:]], "val": [documents("val", 6)]})
