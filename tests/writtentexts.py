"""Write small texts and pack them, for the tests of packing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from shards.description import Dataset
from shards.formats import tokens
from trimaran.data import dataset_json
from trimaran.data.packing import documents, text_packer, tokenizing
from trimaran.data.packing.text_packer import Options
from trimaran.reporting import Silent

WORDS = ["the", "ship", "sails", "west", "with", "three", "hulls;", "die", "Höhe", "高さ",
         "and", "sea"]


def document(number: int) -> str:
    """Return a document of some words, which differs from every other."""
    return f"{number}: " + " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 25))


def folder(place: Path, count: int = 60) -> Path:
    """Write `count` documents into the folder `place`: as files, and as lines of JSON."""
    place.mkdir(parents=True)
    for number in range(count // 3):
        (place / f"{number}.txt").write_text(document(number))
    lines = [json.dumps({"text": document(number)}) for number in range(count // 3, count)]
    half = len(lines) // 2
    (place / "a.jsonl").write_text("\n".join(lines[:half]) + "\n")
    (place / "b.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[half:]).encode(), mtime=0))
    return place


def pack(
    source: Path, out: Path, *, tokenizer: str = "bytes", rule: documents.DocumentRule = "file",
    held_out: int | None = 20, samples: int | None = None, skip_bad: bool = False,
    told: Silent | None = None,
) -> Dataset:
    """Pack the text `source` into `out`."""
    return text_packer.pack(
        documents.listed(source, rule, held_out), out, Options("small", samples),
        tokenizing.choice(tokenizer), skip_bad=skip_bad, reporter=told or Silent(),
    )


def unpacked(out: Path, split: str) -> list[str]:
    """Return the documents of a split, made of their tokens by the tokenizer in the data set."""
    from tokenizers import Tokenizer

    dataset = dataset_json.read(out)
    assert dataset.text is not None
    tokenizer = Tokenizer.from_file(str(out / dataset.text.tokenizer.file))
    return [
        tokenizer.decode(reader.document(number)[:-1].tolist(), skip_special_tokens=False)
        for reader in tokens.open_split(out, dataset, split) for number in range(len(reader))
    ]
