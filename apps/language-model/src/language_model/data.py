"""Batches of sequences from the tokens of a text.

The tokens of all shards of a split form one stream, which is cut into sequences. Each sequence has
one token more than the network reads, because each token is the target of the token before it.
Consecutive sequences therefore share a token, and each token is a target once per epoch. The order
of the sequences depends on the seed and the epoch only (`trainkit.data.order`), and so does not
depend on the ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from language_model.batch import IGNORED, Batch
from trainkit.data.order import Plan
from trainkit.exits import DataError

Ints = NDArray[np.integer[Any]]


class Shard(Protocol):
    """The documents of one shard: `shards.formats.tokens.Reader`, or arrays in memory.

    Attributes:
        tokens: the tokens of all documents, (tokens,).
        ends: the position after the last token of each document, (documents,).
    """

    @property
    def tokens(self) -> Ints: ...  # noqa: D102 - documented above

    @property
    def ends(self) -> Ints: ...  # noqa: D102 - documented above


@dataclass(frozen=True)
class Split:
    """A split of a text.

    Attributes:
        name: name of the split.
        shards: its shards, in reading order.
        text_bytes: size of its text in bytes as UTF-8.
        vocabulary: size of the vocabulary; each token is a number below it.
    """

    name: str
    shards: Sequence[Shard]
    text_bytes: int
    vocabulary: int

    @property
    def tokens(self) -> int:
        """The number of tokens."""
        return sum(len(shard.tokens) for shard in self.shards)


class Sequences:
    """The batches of a split.

    Args:
        split: the split.
        length: number of tokens of a sequence that the network reads.
        batch: sequences of a global batch.
        seed: seed of the order.
        training: whether each epoch has a new order. The tokens after the last whole sequence are
            left out of a training; otherwise they form a shorter sequence with padding.
        documents: whether the batches contain the document number of each token.

    Raises:
        DataError: the split is shorter than one sequence.
    """

    def __init__(
        self, split: Split, length: int, batch: int, *, seed: int = 0, training: bool = False,
        documents: bool = False,
    ) -> None:
        self.split, self.length, self._documents = split, length, documents
        self._targets = split.tokens - 1
        count = self._targets // length if training else -(-self._targets // length)
        if count < 1:
            raise DataError(
                f"the split '{split.name}' has {split.tokens} tokens, which is less than one "
                f"sequence of {length} tokens and a target: use a smaller --sequence",
                code="data-too-small",
            )
        self._plan = Plan(count, batch, seed, training)
        self._order = (0, self._plan.order(0))  # the last epoch that was asked for, and its order
        lengths = [len(shard.tokens) for shard in split.shards]
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        counts = [len(shard.ends) for shard in split.shards]
        self._first_documents = np.concatenate([[0], np.cumsum(counts)])

    @property
    def samples(self) -> int:
        """The number of sequences of an epoch."""
        return self._plan.samples

    @property
    def steps(self) -> int:
        """The number of batches of an epoch; the last one may have padding."""
        return self._plan.steps

    def targets(self, epoch: int, step: int) -> int:
        """Return the number of targets of a global batch, without padding."""
        return sum(self._length(number) for number in self._numbers(epoch, step) if number >= 0)

    def epoch(self, epoch: int, step: int = 0, part: tuple[int, int] = (0, 1)) -> Iterator[Batch]:
        """Yield the batches of `epoch` from `step` on.

        Args:
            epoch: number of the epoch, from 0.
            step: number of the first batch in this epoch.
            part: index of the part of each batch to yield, and number of equal parts.
        """
        index, parts = part
        for number in range(step, self.steps):
            yield self._batch(np.split(self._numbers(epoch, number), parts)[index])

    def _numbers(self, epoch: int, step: int) -> NDArray[np.int64]:
        """Return the numbers of the sequences of a batch; -1 fills the last batch of an epoch."""
        plan = self._plan
        if self._order[0] != epoch:
            self._order = epoch, plan.order(epoch)
        own = self._order[1][step * plan.batch : (step + 1) * plan.batch]
        return np.pad(own, (0, plan.batch - len(own)), constant_values=-1)

    def _length(self, number: int) -> int:
        return min(self.length, self._targets - number * self.length)

    def _batch(self, numbers: NDArray[np.int64]) -> Batch:
        shape = len(numbers), self.length
        tokens, targets = np.zeros(shape, np.int64), np.full(shape, IGNORED, np.int64)
        documents = np.zeros(shape, np.int64)
        for row, number in enumerate(numbers):
            if number < 0:
                continue
            count, first = self._length(number), number * self.length
            found = self._read(first, count + 1)
            tokens[row, :count], targets[row, :count] = found[:-1], found[1:]
            if self._documents:
                documents[row, :count] = self._document_of(first, count)
        positions = torch.arange(self.length).expand(shape).contiguous()
        own = _tensor(documents) if self._documents else None
        return Batch(_tensor(tokens), _tensor(targets), positions, own)

    def _read(self, first: int, count: int) -> Ints:
        """Return `count` tokens of the stream, beginning with the token at position `first`.

        Raises:
            DataError: a token is not in the vocabulary.
        """
        parts = []
        for shard, start in zip(self.split.shards, self._starts, strict=False):
            low, high = max(first - start, 0), min(first + count - start, len(shard.tokens))
            if low < high:
                parts.append(shard.tokens[low:high])
        found = np.concatenate(parts)
        if (largest := int(found.max())) >= self.split.vocabulary:
            raise DataError(
                f"the split '{self.split.name}' has the token {largest} after token {first}, but "
                f"the vocabulary has {self.split.vocabulary}; check it with `trimaran data verify`",
                code="record-invalid",
            )
        return found

    def _document_of(self, first: int, count: int) -> Ints:
        """Return the document number of each of `count` tokens, beginning at position `first`."""
        places = np.arange(first, first + count)
        shards = np.searchsorted(self._starts, places, "right") - 1
        found = np.empty(count, np.int64)
        for shard in np.unique(shards):
            here = shards == shard
            inside = places[here] - self._starts[shard]
            ends = self.split.shards[shard].ends
            found[here] = self._first_documents[shard] + np.searchsorted(ends, inside, "right")
        return found


def _tensor(array: NDArray[np.int64]) -> Tensor:
    return torch.from_numpy(array)


@dataclass(frozen=True)
class Tokens:
    """A shard whose tokens are arrays in memory; `Shard` describes the attributes."""

    tokens: Ints
    ends: Ints


SUCCESSORS = 4
PROBABILITIES = (0.5, 0.25, 0.125, 0.125)
"""Probabilities of the successors of a token in a synthetic text; their entropy is 1.75 bits."""
DOCUMENT = 500  # tokens of a document of the synthetic text


def synthetic(split: str, tokens: int, vocabulary: int) -> Split:
    """Return a text that can be learned: a Markov chain in which each token has four successors.

    The best possible loss is 1.75 bits per token, the entropy of `PROBABILITIES`. The text depends
    on the arguments only. Each token counts as one byte.
    """
    after = np.random.default_rng(vocabulary).integers(0, vocabulary, (vocabulary, SUCCESSORS))
    seed = {"train": 0, "val": 1}[split]
    choices = np.random.default_rng((seed, tokens)).choice(SUCCESSORS, tokens, p=PROBABILITIES)
    found, token = np.empty(tokens, np.uint32), 0
    for place, choice in enumerate(choices):
        token = after[token, choice]
        found[place] = token
    ends = np.append(np.arange(DOCUMENT, tokens, DOCUMENT), tokens)
    return Split(split, [Tokens(found, ends)], tokens, vocabulary)
