"""The batches of a training, from a packed text or from a synthetic one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from language_model import tokenizer
from language_model.data import Sequences, Split, synthetic
from language_model.settings import TrainSettings
from language_model.shapes import Shape
from shards.description import DATASET, Dataset
from shards.errors import ShardError
from shards.formats import tokens
from trainkit.data.dataset import fingerprint, read_description
from trainkit.exits import DataError

SYNTHETIC_TOKENS = {"train": 1 << 17, "val": 1 << 13}
"""The smallest number of tokens of each split of a synthetic text."""


@dataclass(frozen=True)
class Text:
    """A text with its splits.

    Attributes:
        name: identifier of the text: its name and a checksum.
        vocabulary: size of the vocabulary.
        tokenizer: SHA-256 of the tokenizer; None for a synthetic text.
        end: the token that ends each document; None for a synthetic text.
        splits: name -> split.
    """

    name: str
    vocabulary: int
    tokenizer: str | None
    end: int | None
    splits: dict[str, Split]

    def split(self, name: str | None) -> Split:
        """Return the split `name`.

        If `name` is None, return the split `val`, or `test` if the text has no `val`.

        Raises:
            DataError: the text has no such split.
        """
        wanted = [name] if name else ["val", "test"]
        for one in wanted:
            if one in self.splits:
                return self.splits[one]
        raise DataError(
            f"{self.name} has no split '{' or '.join(wanted)}' (it has "
            f"{', '.join(sorted(self.splits))})",
            code="split-missing",
        )


@dataclass(frozen=True)
class Inputs:
    """The batches of a training.

    Attributes:
        name: identifier of the text.
        vocabulary: size of the vocabulary.
        tokenizer: SHA-256 of the tokenizer; None for a synthetic text.
        end: the token that ends each document; None for a synthetic text.
        train: batches of the training split.
        evaluation: batches of the evaluation split, in the order of the text.
    """

    name: str
    vocabulary: int
    tokenizer: str | None
    end: int | None
    train: Sequences
    evaluation: Sequences


def open_text(folder: Path | None, vocabulary: int, batch_tokens: int = 1) -> Text:
    """Return the packed text in `folder`, or a synthetic text if `folder` is None.

    Args:
        folder: folder of a packed text, or None.
        vocabulary: size of the vocabulary of a synthetic text.
        batch_tokens: tokens of a batch. The training split of a synthetic text fills its batches,
            because padding would make the throughput look too low.

    Raises:
        DataError: the data set is missing or damaged, or does not contain text.
    """
    if folder is None:
        # The model predicts every token except the first one, which has no token before it.
        batches = -(-SYNTHETIC_TOKENS["train"] // batch_tokens)
        counts = SYNTHETIC_TOKENS | {"train": batches * batch_tokens + 1}
        splits = {name: synthetic(name, count, vocabulary) for name, count in counts.items()}
        return Text("synthetic", vocabulary, None, None, splits)
    path = folder / DATASET
    found = read_description(path)
    if found.text is None:
        raise DataError(
            f"{path}: samples of the kind {found.sample}; a language model reads a text",
            code="data-unsuitable",
        )
    tokenizer.verified(folder / found.text.tokenizer.file, found.text.tokenizer.sha256)
    sums = [shard.sha256 for shard in found.shards]
    splits = {name: _open_split(folder, found, name) for name in found.splits}
    return Text(
        fingerprint(found.name, sums), found.text.vocabulary, found.text.tokenizer.sha256,
        found.text.end, splits,
    )


def _open_split(folder: Path, found: Dataset, name: str) -> Split:
    try:
        shards = tokens.open_split(folder, found, name)
    except ShardError as error:
        raise DataError(str(error), code="data-damaged") from error
    size, text = found.splits[name].text_bytes, found.text
    if not size or text is None:
        raise DataError(
            f"{folder / DATASET}: the split '{name}' does not list the size of its text in bytes; "
            "pack it again",
            code="data-invalid",
        )
    return Split(name, shards, size, text.vocabulary)


def open_inputs(settings: TrainSettings, shape: Shape) -> Inputs:
    """Return the batches of the training that `settings` describe.

    Args:
        settings: options of the training.
        shape: shape of the network, which determines the default length of a sequence and the
            vocabulary of a synthetic text.

    Raises:
        DataError: the data set is missing or damaged, or a split is too small.
    """
    length, batch = settings.sequence or shape.positions, settings.batch_size
    text = open_text(settings.data, shape.vocabulary, length * batch)
    train = Sequences(
        text.split("train"), length, batch, seed=settings.seed, training=True,
        documents=settings.document_mask,
    )
    evaluation = Sequences(
        text.split(None), length, batch, documents=settings.document_mask
    )
    return Inputs(text.name, text.vocabulary, text.tokenizer, text.end, train, evaluation)
