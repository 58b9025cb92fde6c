"""Words of a command, which may contain variables of the shell script that runs it.

A `Text` is a string, a shell variable, or a sequence of both. Only a text without variables can be
rendered as a string. In shell source, each string is quoted, and each variable expands to exactly
one word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trimaran.errors import UsageError
from trimaran.process import quoted


@dataclass(frozen=True)
class Variable:
    """A variable of the shell script, whose value is unknown until the script runs.

    Attributes:
        name: name of the variable.
        simple: whether its value never contains a comma or a quotation mark.
    """

    name: str
    simple: bool = False


@dataclass(frozen=True)
class CsvField:
    """A text as a field of comma-separated values, which the script quotes where necessary.

    A script with such a word needs the function `csv_field` of `run/functions.sh`.
    """

    text: Text


Part: TypeAlias = str | Variable | CsvField


@dataclass(frozen=True)
class Joined:
    """Strings, variables and fields, concatenated to one word."""

    parts: tuple[Part, ...]


Text: TypeAlias = Part | Joined


@dataclass(frozen=True)
class IfSet:
    """A word that is part of the command only if a shell variable is set and not empty."""

    variable: str
    word: Text


Word: TypeAlias = Text | IfSet


@dataclass(frozen=True)
class ShellJson:
    """Shell source that expands to a JSON value, for a JSON document that a script writes."""

    source: str


def join(*texts: Text) -> Text:
    """Return the concatenation of `texts`; it is a string if no text has a variable."""
    parts: list[Part] = []
    for text in texts:
        for part in pieces(text):
            if isinstance(part, str) and parts and isinstance(parts[-1], str):
                parts[-1] += part
            elif part != "":
                parts.append(part)
    if not parts:
        return ""
    return parts[0] if len(parts) == 1 else Joined(tuple(parts))


def pieces(text: Text) -> tuple[Part, ...]:
    """Return the parts of `text`, in order."""
    return text.parts if isinstance(text, Joined) else (text,)


def plain(word: Word) -> str:
    """Return `word` as a string.

    Raises:
        ValueError: The word has a variable, whose value only the script has.
    """
    if not isinstance(word, str):
        raise ValueError(f"the word contains a shell variable: {word}")
    return word


def shell_source(word: Word) -> str:
    """Return `word` as shell source that expands to one word, or to none (`IfSet`).

    Raises:
        UsageError: The word has control characters.
    """
    if isinstance(word, IfSet):
        source = shell_source(word.word)
        return f"${{{word.variable}:+{source}}}"
    return "".join(_part_source(part) for part in pieces(word) if part != "") or "''"


def _part_source(part: Part) -> str:
    """Return one part of a word as shell source."""
    if isinstance(part, Variable):
        return f'"${part.name}"'
    if isinstance(part, CsvField):
        return f'"$(csv_field {shell_source(part.text)})"'
    return quote(part)


def quote(word: object) -> str:
    """Return a string as shell source on one line, quoted.

    Raises:
        UsageError: The string has control characters; a line break could become a directive of a
            batch system.
    """
    text = str(word)
    if any(ord(character) < ord(" ") or ord(character) == 127 for character in text):
        raise UsageError(f"a script cannot contain control characters: {text!r}",
                         code="control-characters")
    return quoted(text)


def json_source(value: object, indent: int = 0) -> str:
    """Return a JSON document as lines of a here-document, in which `ShellJson` values expand."""
    inner, outer = " " * (indent + 2), " " * indent
    if isinstance(value, ShellJson):
        return value.source
    if isinstance(value, Mapping) and value:
        rows = [f"{inner}{_literal(str(key))}: {json_source(item, indent + 2)}"
                for key, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{outer}}}"
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        rows = [f"{inner}{json_source(item, indent + 2)}" for item in value]
        return "[\n" + ",\n".join(rows) + f"\n{outer}]"
    return _literal(value)


def _literal(value: object) -> str:
    """Return a JSON value for a here-document; backslashes, `$` and backquotes are escaped."""
    return re.sub(r"[\\$`]", r"\\\g<0>", json.dumps(value))
