"""Bits per byte of models that are not trained by gradient descent, on the same held-out text.

A useful language model needs fewer bits per byte than these models. Like the loss of the app, they
count the end of each document, which is the byte 0 in this module, and divide by the bytes of the
text without these ends.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

END = 0
VALUES = 256  # of a byte
LARGEST_ORDER = 8  # bytes in a number of 64 bits
BLOCK = 1 << 22  # bytes to predict at a time


def joined(documents: Iterable[bytes]) -> NDArray[np.uint8]:
    """Return the documents one after the other, each followed by the byte `END`."""
    return np.frombuffer(b"".join(one + bytes([END]) for one in documents), np.uint8)


def xz_bits_per_byte(held_out: Iterable[bytes]) -> float:
    """Return the size of the documents as `xz -9e` compresses them, in bits per byte of text.

    The compressor has not seen the training text.
    """
    compressor = lzma.LZMACompressor(preset=9 | lzma.PRESET_EXTREME)
    packed = text = 0
    for document in held_out:
        packed += len(compressor.compress(document + bytes([END])))
        text += len(document)
    return 8 * (packed + len(compressor.flush())) / text


def ngram_bits_per_byte(
    training: Iterable[bytes], held_out: Iterable[bytes], order: int = 5
) -> float:
    """Return the cross-entropy of an n-gram model of bytes on `held_out`, in bits per byte of text.

    Args:
        training: documents to count; see `NGrams`.
        held_out: documents to predict.
        order: length of the longest n-grams in bytes, 1 to 8; the context has one byte less.
    """
    model, bits, text = NGrams(training, order), 0.0, 0
    before = np.full(order - 1, END, np.uint8)
    for documents in _blocks(held_out):
        predicted = np.concatenate([before, joined(documents)])
        bits -= float(np.log2(model.probabilities(predicted)).sum())
        text += sum(map(len, documents))
        before = predicted[len(predicted) - len(before) :]
    return bits / text


def _blocks(documents: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield the documents in lists of about `BLOCK` bytes."""
    block: list[bytes] = []
    size = 0
    for document in documents:
        block.append(document)
        size += len(document)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


class NGrams:
    """An n-gram model of bytes.

    Its probabilities are interpolated over all orders by the method of Witten and Bell (IEEE
    Transactions on Information Theory 37(4), 1991, method C), in the recursive form of Chen and
    Goodman (Computer Speech and Language 13, 1999, section 2.4):

        p(c | h) = (count(hc) + T(h) p(c | h')) / (count(h) + T(h))

    Here T(h) is the number of different bytes that follow the context h, and h' is h without its
    first byte. Without any context, p(c) is interpolated with 1/256.

    Args:
        training: documents to count.
        order: length of the longest n-grams in bytes, 1 to 8.

    Memory: 15 bytes for each byte of `training` if it is English, more if it has less structure.
    """

    def __init__(self, training: Iterable[bytes], order: int) -> None:
        if not 1 <= order <= LARGEST_ORDER:
            raise ValueError(f"the order is {order}, not from 1 to {LARGEST_ORDER}")
        # The first document has a context, too: the end of a document that is not there.
        text = np.concatenate([np.full(order - 1, END, np.uint8), joined(training)])
        self._counts = [
            Counts(grams_of(text[order - length :], length)) for length in range(1, order + 1)
        ]

    def probabilities(self, text: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the probability of each byte of `text` after the first `order - 1` bytes."""
        order = len(self._counts)
        found = np.full(len(text) - order + 1, 1 / VALUES)
        for length, counts in enumerate(self._counts, 1):
            found = counts.interpolated(grams_of(text[order - length :], length), found)
        return found


def grams_of(text: NDArray[np.uint8], length: int) -> NDArray[np.uint64]:
    """Return each n-gram of `length` bytes as a number; its last byte is the least significant."""
    count = len(text) - length + 1
    grams = np.zeros(count, np.uint64)
    for at in range(length):
        grams <<= np.uint64(8)
        grams |= text[at : at + count]
    return grams


class Counts:
    """The counts of n-grams of one length, of their contexts, and of the bytes after each context.

    The arrays are sorted by n-gram or by context.
    """

    def __init__(self, grams: NDArray[np.uint64]) -> None:
        """Count the occurrences of each n-gram in `grams`, which this method sorts in place."""
        grams.sort()
        first = _starts(grams)
        self._grams = grams[first]
        self._counts = np.diff(first, append=len(grams))
        contexts = self._grams >> np.uint64(8)
        first = _starts(contexts)
        self._contexts = contexts[first]
        self._followers = np.diff(first, append=len(contexts))
        self._totals = np.add.reduceat(self._counts, first)

    def interpolated(
        self, grams: NDArray[np.uint64], lower: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return the probability of the last byte of each n-gram after its context.

        Args:
            grams: n-grams, (bytes,).
            lower: probabilities of the same bytes after the shorter contexts, (bytes,).
        """
        context, known = _found(self._contexts, grams >> np.uint64(8))
        gram, occurs = _found(self._grams, grams)
        count = np.where(occurs, self._counts[gram], 0)
        followers = np.where(known, self._followers[context], 1)
        total = np.where(known, self._totals[context], 0)
        found: NDArray[np.float64] = (count + followers * lower) / (total + followers)
        return found


def _starts(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the positions in a sorted array at which a new value begins."""
    return np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))


def _found(
    known: NDArray[np.uint64], values: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the position of each value in the sorted array `known`, and whether the array has it.

    The position of a value that is missing is any valid index.
    """
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return at, known[at] == values
