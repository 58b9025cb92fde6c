"""Measure the rate of the app's loader of packed text, or the rate of copies in memory.

The loader reads a shard of random tokens of two bytes, which the operating system keeps in memory.
It makes batches of tokens, targets and positions, with 8 bytes for each number. For comparison,
arrays of the same size as these batches are copied: 24 bytes per token.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from language_model.data import Sequences, Split
from shards.formats import tokens
from sidebyside.timing import images_per_second, print_rate

VOCABULARY = 50257
DOCUMENTS, DOCUMENT = 16384, 1024  # 32 MiB, more than the caches of most processors


def loaded(folder: Path, length: int, batch: int) -> Iterator[int]:
    """Yield the number of tokens of each training batch, epoch after epoch."""
    words = np.random.default_rng(0).integers(0, VOCABULARY, (DOCUMENTS, DOCUMENT), np.uint16)
    shard = tokens.write(folder, "train-00000", "uint16", list(words), words.size)
    split = Split("train", [tokens.Reader(folder / shard.file)], words.size, VOCABULARY)
    sequences = Sequences(split, length, batch, training=True)
    for epoch in itertools.count():
        for one in sequences.epoch(epoch):
            yield one.tokens.numel()


def copied(length: int, batch: int) -> Iterator[int]:
    """Copy batches in an endless loop, and yield the number of tokens of each copied batch.

    The loop uses many arrays, so that the processor's caches cannot hold them.
    """
    arrays = torch.zeros(64, 3, batch, length, dtype=torch.int64)
    target = torch.empty_like(arrays)
    for number in itertools.cycle(range(len(arrays))):
        target[number].copy_(arrays[number])
        yield batch * length


def main() -> None:
    """Print the rate of the loader in tokens per second.

    With --copy, print the rate at which arrays of the size of a batch are copied in memory.
    """
    parser = argparse.ArgumentParser(description="Print the tokens/s of the app's loader.")
    parser.add_argument("--sequence", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--batch", type=int, default=16, help="sequences of a batch")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--copy", action="store_true", help="copy arrays instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sizes = copied(options.sequence, options.batch) if options.copy else loaded(
            Path(folder), options.sequence, options.batch
        )
        print_rate(images_per_second(sizes, warmup=64, seconds=options.seconds))


if __name__ == "__main__":
    main()
