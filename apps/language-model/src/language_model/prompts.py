"""The prompts of `predict`, as texts and as tokens."""

from __future__ import annotations

import json
from pathlib import Path

from language_model.settings import PredictSettings
from language_model.tokenizer import Tokenizer
from trainkit.exits import ArgumentError, DataError

JSON_LINES = ".jsonl"


def read(settings: PredictSettings) -> list[str]:
    """Return the prompts from the command line or from the file of prompts.

    Raises:
        ArgumentError: a prompt on the command line is not UTF-8.
        DataError: the file of prompts cannot be read, or a line of it is not a prompt.
    """
    if settings.prompts is not None:
        return _of_file(settings.prompts)
    found = settings.prompt or []
    for number, text in enumerate(found, 1):
        try:
            text.encode()
        except UnicodeEncodeError as error:  # Python has replaced bytes that are not UTF-8
            raise ArgumentError(
                f"--prompt: text {number} is not UTF-8 at its character {error.start + 1}",
                code="prompt-invalid",
            ) from error
    return found


def _of_file(path: Path) -> list[str]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise DataError(
            f"--prompts {path} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    if not lines:
        raise DataError(f"--prompts {path} has no line", code="prompt-invalid")
    return [_of_line(path, number, line) for number, line in enumerate(lines, 1)]


def _of_line(path: Path, number: int, line: bytes) -> str:
    try:
        text = line.decode()
        if path.suffix == JSON_LINES:
            text = json.loads(text)["text"]
            text.encode()  # JSON can describe halves of characters, which no UTF-8 can express
    except UnicodeError as error:
        raise DataError(
            f"--prompts {path}, line {number} is not UTF-8: {error}", code="prompt-invalid"
        ) from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"--prompts {path}, line {number} is not a JSON object with a field 'text' that "
            "contains a text",
            code="prompt-invalid",
        ) from error
    return text


def tokens_of(text: str, words: Tokenizer, end: int, *, masked: bool) -> list[int]:
    """Return the tokens of a prompt, which begins a document.

    In the training text, the token that ends a document precedes the next document. Therefore this
    token also precedes a prompt, unless a mask separated the documents in the training (`masked`).
    An empty prompt always has this token.
    """
    tokens = words.encode(text)
    return tokens if masked and tokens else [end, *tokens]


def check_lengths(prompts: list[list[int]], tokens: int, positions: int) -> None:
    """Refuse prompts that are longer than the network allows if `tokens` more tokens follow.

    Raises:
        ArgumentError: a prompt is too long; the message has its number and its length.
    """
    for number, prompt in enumerate(prompts, 1):
        if len(prompt) + tokens > positions:
            room = max(positions - len(prompt), 0)
            raise ArgumentError(
                f"prompt {number} has {len(prompt)} tokens, and --tokens {tokens} more do not fit "
                f"the {positions} positions of the network: " + (
                    f"use --tokens {room} at most" if room else "use a shorter prompt"
                ),
                code="argument-invalid",
            )
