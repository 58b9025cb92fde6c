"""Write small packed text data sets for tests."""

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


def pack(
    folder: Path, splits: Mapping[str, Sequence[Documents]], tokenizer: str = '{"model": "bytes"}'
) -> Path:
    """Write a packed text data set in which each token is one byte, and return its folder.

    The token `END` is added to each document. `splits` has the documents of each shard of a split;
    `tokenizer` is the content of the tokenizer file.
    """
    folder.mkdir(parents=True)
    (folder / "tokenizer.json").write_text(tokenizer)
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
    """Write a packed text data set that a network can learn, and return its folder.

    It has two shards of 40 training documents, and a shard of 6 validation documents.
    """
    def documents(split: str, count: int) -> list[list[int]]:
        found = synthetic(split, count * 200, 128).shards[0].tokens  # each byte is a character
        return [part.tolist() for part in np.split(found, count)]

    train = documents("train", 80)
    splits = {"train": [train[:40], train[40:]], "val": [documents("val", 6)]}
    return pack(folder, splits, of_bytes())


def written(folder: Path, splits: Mapping[str, Sequence[Sequence[str]]]) -> Path:
    """Write a packed text data set, and return its folder.

    Its tokenizer file can be read by the library `tokenizers`.

    Args:
        folder: folder of the new data set.
        splits: name -> shards of the split, each with its documents.
    """
    packed = {
        name: [[list(document.encode()) for document in documents] for documents in shards]
        for name, shards in splits.items()
    }
    return pack(folder, packed, of_bytes())


def of_bytes() -> str:
    """Return the content of a tokenizer file with one token for each byte, and the token `END`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {ord(char): char for char in alphabet if ord(char) < 256}  # as `bytes_to_unicode`
    rest = (byte for byte in range(256) if byte not in own)
    others = dict(zip(rest, alphabet[len(own):], strict=True))
    vocabulary = {char: byte for byte, char in (own | others).items()}
    found = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    found.decoder = decoders.ByteLevel()
    found.add_special_tokens(["<|endoftext|>"])
    return found.to_str()


def sentences(folder: Path) -> Path:
    """Write a packed text data set of English sentences, which a network can learn.

    Some characters have several bytes.
    """
    who, does, what = ("The ship", "A crew", "Ærø's pilot"), ("sails", "rests"), ("west", "home …")
    every = [f"{a} {b} {c}, said the mate of number {n}." for n in range(24)
             for a in who for b in does for c in what]
    return written(folder, {"train": [every[:100], every[100:270]], "val": [every[270:]]})
