"""The tokenizer of a text: a file of the library `tokenizers`, copied into each run.

The library is imported only by the commands that turn text into tokens or tokens into text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shards.description import DATASET
from trainkit import atomic
from trainkit.data.dataset import read_description
from trainkit.exits import ArgumentError, DataError

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

FILE = "tokenizer.json"
TOGETHER = 1000  # documents that the library decodes in parallel


class Tokenizer:
    """A tokenizer file.

    Args:
        content: content of the file.
        path: path of the file, for messages.

    Raises:
        ArgumentError: the library is not installed.
        DataError: the content is not a tokenizer.
    """

    def __init__(self, content: bytes, path: Path) -> None:
        self._library = _parsed(content, path)
        self._library.no_truncation()
        self._library.no_padding()
        # The name of a special token within a text is text, as in the packed data.
        self._library.encode_special_tokens = True

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens such as a start token."""
        tokens: list[int] = self._library.encode(text, add_special_tokens=False).ids
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens; bytes that are not UTF-8 become U+FFFD."""
        return self._library.decode(list(tokens), skip_special_tokens=False)

    def decode_all(self, documents: Iterable[Sequence[int]]) -> Iterator[bytes]:
        """Yield the text of each document as UTF-8; several documents are decoded together."""
        group: list[Sequence[int]] = []
        for document in documents:
            group.append(document)
            if len(group) == TOGETHER:
                yield from self._decoded(group)
                group = []
        yield from self._decoded(group)

    def _decoded(self, group: list[Sequence[int]]) -> Iterator[bytes]:
        for text in self._library.decode_batch(group, skip_special_tokens=False):
            yield text.encode()


def _parsed(content: bytes, path: Path) -> Library:
    try:
        from tokenizers import Tokenizer as Library
    except ImportError as error:
        raise ArgumentError(
            "the Python package `tokenizers` is not installed, which turns text into tokens: "
            "`pip install tokenizers`, or use an image of this app",
            code="library-missing",
        ) from error
    try:
        return Library.from_buffer(content)
    except Exception as error:  # the library raises Exception itself
        raise DataError(
            f"{path} is not a tokenizer of the library tokenizers: {error}", code="data-invalid"
        ) from error


def verified(path: Path, sha256: str) -> bytes:
    """Return the content of a tokenizer file, after a comparison with its SHA-256.

    Raises:
        DataError: the file cannot be read, or has another SHA-256.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(
            f"the tokenizer {path} cannot be read: {error.strerror}", code="data-damaged"
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(
            f"{path} is not the tokenizer that made the tokens: its SHA-256 is not {sha256}; "
            "restore the file, or pack the text again",
            code="checksum-mismatch",
        )
    return content


def of_data(data: Path) -> Path:
    """Return the path of the tokenizer of the packed text in the folder `data`.

    Raises:
        DataError: the folder contains no packed text.
    """
    path = data / DATASET
    found = read_description(path)
    if found.text is None:
        raise DataError(
            f"{path}: samples of the kind {found.sample}; a language model reads a text",
            code="data-unsuitable",
        )
    return data / found.text.tokenizer.file


def of_run(data: Path | None, run: Path | None, checkpoint: Path | None) -> Path:
    """Return the path where the tokenizer of a trained network should be.

    Args:
        data: folder of the packed text; None for the copy in the folder of the run.
        run: folder of the run; None for the folder of the run that wrote `checkpoint`.
        checkpoint: checkpoint file of a run.

    Raises:
        DataError: `data` contains no packed text.
    """
    if data is not None:
        return of_data(data)
    if run is None:
        assert checkpoint is not None  # noqa: S101 - `check` of the settings refuses None
        run = checkpoint.resolve().parent.parent
    return run / FILE


def keep(data: Path, sha256: str, run: Path) -> None:
    """Copy the tokenizer of a packed text into the folder of a run.

    With this copy, `predict` needs only the folder of the run, and not the data set.

    Args:
        data: folder of the packed text.
        sha256: SHA-256 of the tokenizer.
        run: folder of the run.

    Raises:
        DataError: the packed text has another tokenizer.
    """
    content = verified(of_data(data), sha256)
    with atomic.replacing(run / FILE) as file:
        file.write(content)
