"""Bits per byte of models that are not trained by gradient descent, on the same held-out text.

A language model has to be better than these. Like the loss of the app, both count the end of each
document, which is the byte 0 here, and both divide by the bytes of the text without these ends.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

END = 0
VALUES = 256  # of a byte
LARGEST_ORDER = 8  # bytes in a number of 64 bits


def joined(documents: Iterable[bytes]) -> NDArray[np.uint8]:
    """Return the documents one after the other, each followed by the byte `END`."""
    return np.frombuffer(b"".join(one + bytes([END]) for one in documents), np.uint8)


def xz_bits_per_byte(held_out: Sequence[bytes]) -> float:
    """Return the size of the documents as `xz -9e` compresses them, in bits per byte of text.

    The compressor has not seen the training text.
    """
    packed = lzma.compress(joined(held_out).tobytes(), preset=9 | lzma.PRESET_EXTREME)
    return 8 * len(packed) / sum(map(len, held_out))


def ngram_bits_per_byte(
    training: Iterable[bytes], held_out: Sequence[bytes], order: int = 5
) -> float:
    """Return the cross-entropy of an n-gram model of bytes on `held_out`, in bits per byte of text.

    The model is counted on `training`. Its probabilities are interpolated over all orders by the
    method of Witten and Bell (IEEE Transactions on Information Theory 37(4), 1991, method C), in
    the recursive form of Chen and Goodman (Computer Speech and Language 13, 1999, section 2.4):

        p(c | h) = (count(hc) + T(h) p(c | h')) / (count(h) + T(h))

    Here T(h) is the number of different bytes that follow the context h, and h' is h without its
    first byte. Without any context, p(c) is interpolated with 1/256.

    Args:
        training: documents to count.
        held_out: documents to predict.
        order: length of the longest n-grams in bytes, 1 to 8; the context has one byte less.

    Memory: 15 bytes for each byte of `training` if it is English, more if it has less structure.
    """
    if not 1 <= order <= LARGEST_ORDER:
        raise ValueError(f"the order is {order}, not from 1 to {LARGEST_ORDER}")
    # The first document has a context, too: the end of a document that is not there.
    before = np.full(order - 1, END, np.uint8)
    counted = np.concatenate([before, joined(training)])
    text = joined(held_out)
    predicted = np.concatenate([before, text])
    probability = np.full(len(text), 1 / VALUES)
    for length in range(1, order + 1):
        start = order - length
        seen = Counts(grams_of(counted[start:], length))
        probability = seen.interpolated(grams_of(predicted[start:], length), probability)
    return float(-np.log2(probability).sum()) / sum(map(len, held_out))


def grams_of(text: NDArray[np.uint8], length: int) -> NDArray[np.uint64]:
    """Return all n-grams of `length` bytes as numbers, whose last byte is the lowest one."""
    count = len(text) - length + 1
    grams = np.zeros(count, np.uint64)
    for at in range(length):
        grams <<= np.uint64(8)
        grams |= text[at : at + count]
    return grams


class Counts:
    """How often n-grams of one length occur, and what follows their contexts.

    The arrays are in the order of the n-grams, or of the contexts.
    """

    def __init__(self, grams: NDArray[np.uint64]) -> None:
        """Count `grams`, which are sorted in place."""
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
    """Return for each value its position in the sorted array `known`, and whether it is there.

    The position of a value that is not there is any valid one.
    """
    at = np.minimum(np.searchsorted(known, values), len(known) - 1)
    return at, known[at] == values
