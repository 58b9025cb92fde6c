"""The options of an app, by which its arguments are checked before a run.

`apps/<app>/options.json` is generated from the settings of the app (`make generate-apps`), and
describes each option by keywords of JSON Schema, so that the tool need not import the app.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr

from trimaran import paths, strict
from trimaran.errors import UsageError, nearest

Argument = StrictBool | StrictInt | StrictFloat | StrictStr

_WORDS = {"integer": "a whole number", "number": "a number", "string": "a number or a word"}


class Option(strict.Model):
    """One option: type and limits, default (null: none, or it depends on the machine) and help."""

    type: Literal["integer", "number", "boolean", "string"]
    enum: list[str] | None = None
    minimum: float | None = None
    exclusive_minimum: float | None = Field(default=None, alias="exclusiveMinimum")
    exclusive_maximum: float | None = Field(default=None, alias="exclusiveMaximum")
    default: Argument | None = None
    description: str

    def fault(self, value: Argument) -> str | None:
        """Return why the app would refuse `value`, which it gets as a word, or None."""
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if (self.type == "boolean") != isinstance(value, bool):
            allowed = "true or false" if self.type == "boolean" else _WORDS[self.type]
            return f"must be {allowed}, got {word}"
        if self.enum is not None and word not in self.enum:
            return f"must be one of {', '.join(self.enum)}; got {word}"
        if self.type in ("integer", "number"):
            return self._number_fault(word)
        return None

    def _number_fault(self, word: str) -> str | None:
        try:
            number = int(word) if self.type == "integer" else float(word)
        except ValueError:
            return f"must be {_WORDS[self.type]}, got {word}"
        if isinstance(number, float) and not math.isfinite(number):
            return f"must be finite, got {word}"
        if self.minimum is not None and number < self.minimum:
            return f"must be at least {self.minimum:g}, got {word}"
        if self.exclusive_minimum is not None and number <= self.exclusive_minimum:
            return f"must be above {self.exclusive_minimum:g}, got {word}"
        if self.exclusive_maximum is not None and number >= self.exclusive_maximum:
            return f"must be below {self.exclusive_maximum:g}, got {word}"
        return None


class Verb(strict.Model):
    """A verb of an app and its options by name; `renamed` maps old names of options to new ones."""

    description: str
    options: dict[str, Option]
    renamed: dict[str, str] = Field(default_factory=dict)


class AppOptions(strict.Model):
    """The content of `options.json`."""

    schema_: Literal[1] = Field(alias="schema")
    verbs: dict[str, Verb]


def unchecked(app: str) -> str | None:
    """Return why the arguments of `app` cannot be checked before a run, or None if they can."""
    if _path(app).is_file():
        return None
    return f"{_path(app)} is missing: only the app itself will check its arguments"


def verbs(app: str) -> dict[str, Verb]:
    """Return the verbs of `app` by name, from its `options.json`.

    Raises:
        UsageError: `options.json` is missing or damaged.
    """
    return strict.load_json(AppOptions, _path(app)).verbs


def faults(app: str, verb: str, args: Mapping[str, Argument]) -> dict[str, str]:
    """Return argument -> fault, for the arguments of a verb of `app`; empty if `unchecked`.

    Raises:
        UsageError: `options.json` is damaged, or lacks the verb.
    """
    if unchecked(app):
        return {}
    known = verbs(app)
    if verb not in known:
        raise UsageError(
            f"{_path(app)}: verbs: no '{verb}' ({nearest(verb, known)})", code="file-outdated",
            hint="`make generate-apps` writes the file",
        )
    found = {key: _fault(f"{app} {verb}", known[verb], key, value) for key, value in args.items()}
    return {key: fault for key, fault in found.items() if fault is not None}


def _fault(command: str, verb: Verb, key: str, value: Argument) -> str | None:
    if key in verb.options:
        return verb.options[key].fault(value)
    if key in verb.renamed:
        return f"was renamed to {verb.renamed[key]}"
    return f"{command} has no such option ({nearest(key, verb.options, cutoff=0.5)})"


def _path(app: str) -> Path:
    return paths.app(app) / "options.json"
