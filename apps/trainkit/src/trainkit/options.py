"""Create command-line options from dataclass fields, so that each option is documented once.

    @dataclass(frozen=True)
    class Settings:
        epochs: int = option(90, "passes over the training images", positive_int)

defines `--epochs`, with a check of its value and its default in `--help`. A boolean field defines
`--name` and `--no-name`. A class attribute `RENAMED` (old field name -> new field name) makes the
parser refuse an old name with a message that contains the new name. `described` returns all options
as the content of an app's `options.json`. `trimaran` reads this file to check arguments before it
starts anything.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

Settings = TypeVar("Settings")

WORD = 2**63
"""Exclusive upper limit of integer options: values must fit into a machine word of 64 bits."""
LARGEST = 1e38  # close to the maximum of fp32
SHOWN = 40  # maximum characters of an invalid value in a message


def option(
    default: Any,
    text: str,
    kind: Callable[[str], Any] | None = None,
    *,
    choices: Sequence[str] | None = None,
    metavar: str | None = None,
    nargs: str | None = None,
    shown: str | None = None,
) -> Any:
    """Return a dataclass field that defines an option: its default, help text and parser.

    Args:
        default: value if the option is not used; a bool defines the two options `--x` and `--no-x`.
        text: one line for `--help`.
        kind: parser that converts the text, and raises ArgumentTypeError with the allowed values.
        choices: the allowed words.
        metavar: the placeholder in `--help`.
        nargs: "+" for an option whose value is a list of one or more values; the option may be
            repeated.
        shown: description of a default that depends on the machine.
    """
    extra = {"help": text, "type": kind, "choices": choices, "metavar": metavar, "nargs": nargs}
    return dataclasses.field(default=default, metadata={"shown": shown, "argument": extra})


def add_options(parser: argparse.ArgumentParser, settings: type[Any]) -> None:
    """Add an option to `parser` for each field of the dataclass `settings`."""
    for field in dataclasses.fields(settings):
        name = _flag(field.name)
        extra = {k: value for k, value in field.metadata["argument"].items() if value is not None}
        shown = _word(field.default) if field.metadata["shown"] is None else field.metadata["shown"]
        if shown is not None:
            extra["help"] += f" (default: {shown})".replace("%", "%%")
        if isinstance(field.default, bool):
            extra["action"] = argparse.BooleanOptionalAction
        if extra.get("nargs") == "+":
            extra["action"] = "extend"  # a repeated option adds its values
        parser.add_argument(name, dest=field.name, default=field.default, **extra)
    for old, new in _renamed(settings).items():
        parser.add_argument(f"--{old}", action=_Renamed, now=f"--{new}")


class _Renamed(argparse.Action):
    """The old name of a renamed option, which the parser refuses; `--help` does not list it."""

    def __init__(self, option_strings: Sequence[str], dest: str, now: str) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs="?", help=argparse.SUPPRESS)
        self._now = now

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object,
        option_string: str | None = None,
    ) -> NoReturn:
        parser.error(f"{option_string} is called {self._now} now")


def described(commands: Mapping[str, tuple[type[Any], str]]) -> str:
    """Return the options of an app as JSON, the content of its `options.json`.

    The description of an option uses keywords of JSON Schema (json-schema.org, validation).

    Args:
        commands: verb -> its class of settings, and its description in one line.
    """
    verbs = {
        verb: {
            "description": text,
            "options": {
                field.name.replace("_", "-"): _described(field)
                for field in dataclasses.fields(settings)
            },
            **({"renamed": renamed} if (renamed := _renamed(settings)) else {}),
        }
        for verb, (settings, text) in commands.items()
    }
    return json.dumps({"schema": 1, "verbs": verbs}, indent=1) + "\n"


def collect(settings: type[Settings], namespace: argparse.Namespace) -> Settings:
    """Return an instance of the dataclass `settings` with the values of the parsed `namespace`."""
    names = [field.name for field in dataclasses.fields(settings)]  # type: ignore[arg-type]
    return settings(**{name: getattr(namespace, name) for name in names})


def positive_int(text: str) -> int:
    """Parse an integer of at least 1."""
    return _int(text, 1, WORD)


def non_negative_int(text: str) -> int:
    """Parse an integer of at least 0."""
    return _int(text, 0, WORD)


def up_to(most: int) -> Callable[[str], int]:
    """Return a parser of integers from 1 to `most`."""
    def parse(text: str) -> int:
        return _int(text, 1, most + 1)

    _RANGES[parse] = {"type": "integer", "minimum": 1, "exclusiveMaximum": most + 1}
    return parse


def positive_float(text: str) -> float:
    """Parse a finite number above 0."""
    value = _float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def non_negative_float(text: str) -> float:
    """Parse a finite number of at least 0."""
    value = _float(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, got {text}")
    return value


def fraction(text: str) -> float:
    """Parse a number of at least 0 and below 1."""
    value = _float(text)
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 0 and below 1, got {text}")
    return value


def increasing(text: str) -> tuple[float, ...]:
    """Parse increasing numbers above 0, separated by commas, such as 30,60,80."""
    values = tuple(positive_float(part) for part in text.split(","))
    if any(second <= first for first, second in itertools.pairwise(values)):
        raise argparse.ArgumentTypeError(f"each must be above the one before, got {text}")
    return values


_RANGES: dict[Any, dict[str, Any]] = {
    positive_int: {"type": "integer", "minimum": 1, "exclusiveMaximum": WORD},
    non_negative_int: {"type": "integer", "minimum": 0, "exclusiveMaximum": WORD},
    positive_float: {"type": "number", "exclusiveMinimum": 0},
    non_negative_float: {"type": "number", "minimum": 0},
    fraction: {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
}
"""Parser -> JSON Schema of the values that the parser accepts; other parsers accept any string."""


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _renamed(settings: type[Any]) -> dict[str, str]:
    """Return the renamed options: old name -> new name, as written on the command line."""
    names: Mapping[str, str] = getattr(settings, "RENAMED", {})
    return {old.replace("_", "-"): new.replace("_", "-") for old, new in names.items()}


def _described(field: dataclasses.Field[Any]) -> dict[str, Any]:
    argument, shown = field.metadata["argument"], field.metadata["shown"]
    found = dict(_RANGES.get(argument["type"], {"type": "string"}))
    if isinstance(field.default, bool):
        found = {"type": "boolean"}
    if argument["choices"] is not None:
        found["enum"] = list(argument["choices"])
    if shown is not None:
        return {**found, "description": f"{argument['help']} (default: {shown})"}
    plain = field.default is None or isinstance(field.default, bool | int | float | str)
    default = field.default if plain else _word(field.default)
    return {**found, "default": default, "description": argument["help"]}


def _word(default: Any) -> str | None:
    """Return a default as it is written on the command line, or None if there is no default."""
    if isinstance(default, tuple):
        return ",".join(f"{value:g}" for value in default)
    return None if default is None else str(default)


def _int(text: str, least: int, below: int) -> int:
    try:
        value = int(text)
    except ValueError:  # also raised for numbers of thousands of digits
        raise argparse.ArgumentTypeError(
            f"must be a whole number from {least} to {below - 1}, got '{_short(text)}'"
        ) from None
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {_short(text)}")
    if value >= below:
        raise argparse.ArgumentTypeError(f"must be below {below}, got {_short(text)}")
    return value


def _float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got '{_short(text)}'") from None
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be finite, got {_short(text)}")
    if abs(value) > LARGEST:
        raise argparse.ArgumentTypeError(f"must be at most {LARGEST:g}, got {_short(text)}")
    return value


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
