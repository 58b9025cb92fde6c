"""Compute the yardsticks of a packed text: the bits per byte of models without a neural network.

The models (`yardsticks.py`) read documents as bytes, so the tokenizer must restore the text from
the tokens.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from language_model import tokenizer, yardsticks
from language_model.data import Ints, Split
from language_model.inputs import Inputs
from language_model.settings import TrainSettings
from language_model.tokenizer import Tokenizer
from trainkit.checkpoint import State
from trainkit.console import Counter
from trainkit.exits import DataError
from trainkit.strategy import Strategy

MOST_BYTES = 64 << 20
"""Largest size in bytes of the text that the n-gram model counts; it then needs 1 GB of memory."""


@dataclass(frozen=True)
class Yardsticks:
    """Bits per byte of baselines without a neural network, on the text that evaluates the network.

    Attributes:
        xz: bits per byte of the compressor `xz -9e`.
        ngram: bits per byte of the order-5 n-gram model.
        counted_bytes: bytes of training text that the n-gram model has counted.
        training_bytes: bytes of the whole training text.
    """

    xz: float
    ngram: float
    counted_bytes: int
    training_bytes: int

    def scores(self, bits_per_byte: float) -> dict[str, float]:
        """Return the bits per byte of each baseline, and the margin by which the network is better.

        The margin is the bits per byte of the baseline minus those of the network; it is
        negative if the network is worse.

        Args:
            bits_per_byte: bits per byte of the network.
        """
        return {
            "bits_per_byte_xz": self.xz, "bits_per_byte_ngram": self.ngram,
            "margin_xz": self.xz - bits_per_byte, "margin_ngram": self.ngram - bits_per_byte,
        }

    def facts(self, bits_per_byte: float) -> dict[str, float]:
        """Return the result of `scores` and the sizes of the training text, by name."""
        sizes = {"counted_bytes": self.counted_bytes, "training_bytes": self.training_bytes}
        return self.scores(bits_per_byte) | sizes

    def __str__(self) -> str:
        part = ""
        if self.counted_bytes < self.training_bytes:
            part = (
                f", counted on the first {self.counted_bytes / 1e6:.0f} of "
                f"{self.training_bytes / 1e6:.0f} MB of the training text"
            )
        return f"xz -9e {self.xz:.4f}, order-5 n-gram model {self.ngram:.4f}{part}"


def measure(
    folder: Path, training: Split, held_out: Split, strategy: Strategy,
    stream: TextIO | None = None,
) -> Yardsticks:
    """Compute the scores of the baselines on rank 0, and return them on all ranks.

    Args:
        folder: folder of the packed text.
        training: the split that the n-gram model counts.
        held_out: the split to predict.
        strategy: the strategy that connects the ranks.
        stream: where rank 0 shows the progress; default: stdout.

    Raises:
        DataError: the tokenizer does not restore the text from the tokens.
    """
    found = None
    with strategy.unhurried():
        if strategy.is_main:
            path = tokenizer.of_data(folder)
            found = _measure(Tokenizer(path.read_bytes(), path), training, held_out,
                             stream or sys.stdout)
    found = strategy.share(found)
    assert found is not None  # noqa: S101 - rank 0 shares it
    return found


def of_training(
    settings: TrainSettings, data: Inputs, state: State | None, strategy: Strategy
) -> Yardsticks | None:
    """Return the scores of the baselines of a training, from its checkpoint or newly computed.

    Args:
        settings: options of the training.
        data: the batches of the training.
        state: the checkpoint from which the training resumes; None for a new run.
        strategy: the strategy that connects the ranks.

    Returns:
        The scores, or None if the options do not request them.

    Raises:
        DataError: the tokenizer does not restore the text from the tokens.
    """
    if not settings.yardsticks or settings.data is None:
        return None
    if state is not None:
        return Yardsticks(**state["yardsticks"])
    found = measure(settings.data, data.train.split, data.evaluation.split, strategy)
    if strategy.is_main:
        print(f"yardsticks, bits per byte: {found}", flush=True)
    return found


def _measure(
    words: Tokenizer, training: Split, held_out: Split, stream: TextIO
) -> Yardsticks:
    documents = [sum(len(shard.ends) for shard in split.shards) for split in (training, held_out)]
    with Counter("computing the yardsticks", documents[0] + 2 * documents[1], "documents",
                 stream=stream) as done:
        known = Exact(words, training, done.add, MOST_BYTES)
        ngram = yardsticks.ngram_bits_per_byte(known, Exact(words, held_out, done.add))
        xz = yardsticks.xz_bits_per_byte(Exact(words, held_out, done.add))
    return Yardsticks(xz, ngram, known.bytes, training.text_bytes)


class Exact:
    """The documents of a split as bytes, which must have exactly the size of the original text.

    Args:
        words: the tokenizer.
        split: the split.
        on_document: function that is called after each document.
        most: largest total size of the documents in bytes; the iteration ends before the first
            document that would exceed it; None for no limit.

    Attributes:
        bytes: size of the documents that the current iteration has yielded.
    """

    def __init__(
        self, words: Tokenizer, split: Split, on_document: Callable[[], None],
        most: int | None = None,
    ) -> None:
        self._words, self._split, self._done, self._most = words, split, on_document, most
        self.bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the documents.

        Raises:
            DataError: all documents together do not have the size of the text that was packed.
        """
        self.bytes, whole = 0, self._split.text_bytes
        tokens = (one.tolist() for one in self._documents())
        for document in self._words.decode_all(tokens):
            if self._most is not None and self.bytes + len(document) > self._most:
                return
            self.bytes += len(document)
            self._done()
            yield document
        if self.bytes != whole:
            raise DataError(
                f"the split '{self._split.name}' has a text of {whole} bytes, and its tokens give "
                f"{self.bytes} bytes: its tokenizer loses a part of the text, so that there are no "
                "yardsticks for it; evaluate without --yardsticks",
                code="data-unsuitable",
            )

    def _documents(self) -> Iterator[Ints]:
        """Yield the tokens of each document, without the token that marks its end."""
        for shard in self._split.shards:
            first = 0
            for end in shard.ends.tolist():
                yield shard.tokens[first : end - 1]
                first = end
