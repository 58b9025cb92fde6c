"""Turn documents into tokens with the library `tokenizers`, and make tokenizers for them.

A tokenizer is stored in one JSON file, in the format of that library. The tokens depend on this
file and the documents, but not on the machine or the number of threads.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from shards.description import largest_vocabulary
from shards.kinds import TokenType
from trimaran.errors import UsageError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from shards.formats.tokens import Tokens

FILE = "tokenizer.json"
END = "<|endoftext|>"
ENDS = (END, "<|end_of_text|>", "</s>", "<eos>")
"""Names that the end-of-document token has in published tokenizers.

GPT-2 uses the first name, Llama 3 the second, Llama 2 and Mistral the third, and Gemma the fourth.
If a tokenizer has several of these tokens, the first in this order is used.
"""

BYTES = 256
SMALLEST = BYTES + 1  # size of a vocabulary of all bytes and the end of a document


@dataclass(frozen=True)
class Choice:
    """The tokenizer that the user or a contract requests.

    Attributes:
        made: `bytes` (a token is a byte), `bpe:SIZE` (a BPE is trained) or `file`.
        size: size of the vocabulary of the BPE; 0 if no BPE is trained.
        path: path of the tokenizer file; None unless `made` is `file`.
    """

    made: str
    size: int = 0
    path: Path | None = None


def choice(text: str, folder: Path = Path()) -> Choice:
    """Return the tokenizer that the argument of `--tokenizer` requests.

    The argument is `bytes`, `bpe:SIZE` or the path of a tokenizer file.

    Args:
        text: the argument.
        folder: folder to which a relative path refers.

    Raises:
        UsageError: the size is too small or too large, or the file does not exist.
    """
    if text == "bytes":
        return Choice("bytes")
    if (match := re.fullmatch(r"bpe:([0-9]{1,10})", text)) is not None:
        size, most = int(match[1]), largest_vocabulary("uint32")
        if not SMALLEST <= size <= most:
            raise UsageError(f"--tokenizer {text}: the vocabulary has {SMALLEST:,} to {most:,}"
                             " tokens: the bytes, the end of a document, and pairs that are merged",
                             code="argument-invalid", hint="for example: bpe:8192")
        return Choice(f"bpe:{size}", size)
    path = folder / text
    if not path.is_file():
        raise UsageError(f"--tokenizer: {path} is not a file", code="file-missing",
                         hint="give bytes, bpe:SIZE, or a tokenizer.json of the library tokenizers")
    return Choice("file", path=path)


def use_threads(count: int) -> None:
    """Set the number of threads of the library `tokenizers`.

    The library reads this number when it is first used, so this function must be called before.
    """
    os.environ["RAYON_NUM_THREADS"] = str(count)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"


def version() -> str:
    """Return the name and version of the library `tokenizers`."""
    import tokenizers

    return f"tokenizers {tokenizers.__version__}"


def of_bytes() -> bytes:
    """Return the content of the file of a tokenizer whose tokens are bytes.

    Each byte of a document becomes one token, the value of the byte. Token 256 ends a document.
    """
    from tokenizers import models

    vocabulary = {character: byte for byte, character in _characters().items()}
    return _file(_byte_level(models.BPE(vocab=vocabulary, merges=[]), split_words=False))


def trained(documents: Iterable[str], size: int) -> bytes:
    """Return the content of the tokenizer file of a byte-level BPE that is trained on `documents`.

    BPE is the algorithm of Sennrich, Haddow and Birch, ACL 2016. As in GPT-2 (Radford et al. 2019,
    section 2.2), the text is first divided into words, and each byte is written as a character.

    Args:
        documents: the documents of the training split.
        size: size of the vocabulary. It becomes smaller if the text has too few different pairs of
            tokens to merge.
    """
    from tokenizers import models, pre_tokenizers, trainers

    found = _byte_level(models.BPE(), split_words=True)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    found.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=alphabet, show_progress=False,
    ))
    return _file(found)


def _byte_level(model: Any, *, split_words: bool) -> Tokenizer:
    """Return a byte-level tokenizer with `model`: one character stands for each byte of a text."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    found = Tokenizer(model)
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split_words)
    found.decoder = decoders.ByteLevel()
    return found


def _file(tokenizer: Tokenizer) -> bytes:
    """Add the end-of-document token to `tokenizer`, and return the content of its file."""
    tokenizer.add_special_tokens([END])
    return tokenizer.to_str(pretty=True).encode() + b"\n"


def _characters() -> dict[int, str]:
    """Return a dictionary that maps each byte to its character in a byte-level BPE.

    The library provides only the set of these characters. A printable byte is represented by its
    character in Latin-1; the other bytes, in increasing order, are represented by the characters
    from U+0100 on (`bytes_to_unicode` of GPT-2).
    """
    from tokenizers import pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    own = {ord(char): char for char in alphabet if ord(char) < BYTES}
    others = (byte for byte in range(BYTES) if byte not in own)
    return dict(sorted({**own, **dict(zip(others, alphabet[len(own):], strict=True))}.items()))


class Encoder:
    """A tokenizer that turns documents into tokens.

    Attributes:
        file: content of the tokenizer file.
        vocabulary: size of the vocabulary: the largest token plus 1.
        end: the token that ends a document.
        token: the smallest integer type that can store all tokens: "uint16" or "uint32".
        unknown: the token for text that the vocabulary cannot express; None if there is none.
    """

    def __init__(self, file: bytes, place: Path) -> None:
        """Read the content `file` of a tokenizer file; `place` is its path, for messages.

        Raises:
            UsageError: the content is not a tokenizer, or it has no end-of-document token, or a
                document could contain text that becomes this token.
        """
        self.file = file
        self._tokenizer = _parsed(file, place)
        self._plain_bytes = file == of_bytes()
        # Truncation would lose text, and padding would add tokens that are not in the text.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # If a document contains the name of the token that ends a document, encode it as text.
        self._tokenizer.encode_special_tokens = True
        tokens = self._tokenizer.get_vocab(with_added_tokens=True)
        self.vocabulary = max(tokens.values(), default=-1) + 1
        special = {one.content for one in self._tokenizer.get_added_tokens_decoder().values()
                   if one.special}
        names = [name for name in ENDS if name in special]
        if not names:
            raise UsageError(
                f"{place} has no special token that ends a document: {', '.join(ENDS)}",
                code="tokenizer-invalid", hint="add one of them to its added_tokens",
            )
        self.end = tokens[names[0]]
        if self.end in self._tokenizer.encode(names[0], add_special_tokens=False).ids:
            raise UsageError(
                f"{place}: the text {names[0]} becomes the token that ends a document, because the"
                " vocabulary of the model contains it", code="tokenizer-invalid",
                hint=f"remove {names[0]} from the vocabulary of the model, and keep it as a special"
                " token in added_tokens",
            )
        self.token: TokenType = (
            "uint16" if self.vocabulary <= largest_vocabulary("uint16") else "uint32"
        )
        self.unknown = _File.model_validate_json(file).model.unknown(tokens)

    def encode(self, documents: list[bytes]) -> Iterator[Tokens]:
        """Yield the tokens of each document in order, followed by the token that ends a document.

        Args:
            documents: the documents as UTF-8.
        """
        if self._plain_bytes:  # NumPy: the library needs 100 bytes of memory per token
            found: Iterable[Any] = (np.frombuffer(one, np.uint8) for one in documents)
        else:
            texts = [one.decode() for one in documents]
            found = (one.ids for one in
                     self._tokenizer.encode_batch_fast(texts, add_special_tokens=False))
        for ids in found:
            tokens: Tokens = np.empty(len(ids) + 1, self.token)
            tokens[:-1], tokens[-1] = ids, self.end
            yield tokens


class _Model(BaseModel):
    """The key `model` of a tokenizer file, reduced to the token for unknown text.

    Attributes:
        unk_id: number of the token; only models of the type Unigram have it.
        unk_token: name of the token, in the other models.
    """

    unk_id: int | None = None
    unk_token: str | None = None

    def unknown(self, tokens: Mapping[str, int]) -> int | None:
        """Return the number of the token for unknown text; None if the model has no such token.

        `tokens` maps the names of all tokens to their numbers.
        """
        if self.unk_id is not None:
            return self.unk_id
        return tokens.get(self.unk_token) if self.unk_token else None


class _File(BaseModel):
    """A tokenizer file, reduced to the key that the library `tokenizers` cannot return.

    Other keys are not validated, because the library has already parsed the file.
    """

    model: _Model


def _parsed(file: bytes, place: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(file)
    except Exception as error:  # the library raises the class Exception
        raise UsageError(f"{place} is not a tokenizer of the library tokenizers: {error}",
                         code="tokenizer-invalid",
                         hint="save it with Tokenizer.save, or save_pretrained of transformers",
                         ) from error
