"""Strict files: every fault at once, each with its key and what is allowed.

YAML is written by hand, JSON by programs; faults of both have lines where these can be told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from trimaran import parsing
from trimaran.errors import UsageError, unreadable
from trimaran.parsing import Location
from trimaran.terminal_safety import excerpt

DIGEST = r"^sha256:[0-9a-f]{64}$"
Digest = Annotated[str, Field(pattern=DIGEST)]
"""What an image is called by in a registry, in a recipe, in a record."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Model(BaseModel):
    """Base of all file models: unknown keys are errors, values are not coerced, frozen."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=False, populate_by_name=True,
        defer_build=True,  # a command uses few of them
    )


M = TypeVar("M", bound=Model)

HIDDEN = "hidden"
"""Type of a PydanticCustomError whose input is not to be repeated in the message."""


def load(model: type[M], path: Path) -> M:
    """Read `path` as YAML into `model`.

    Raises:
        UsageError: the file is missing, is no YAML, or breaks the model; the message
            has one line `file:line: key: problem` for each fault.
    """
    return load_one(lambda content: model, path)


def load_one(choose: Callable[[object], type[M]], path: Path) -> M:
    """Read `path` as YAML into the model that `choose` returns for its content; see `load`."""
    try:
        document = parsing.parse_yaml(_read(path, parsing.YAML_BYTES))
    except parsing.Malformed as error:
        raise UsageError(_at(path, error)) from error
    return _validated(choose(document.content), document.content, document.lines, path)


def refuse(path: Path, faults: Mapping[Location, str], hint: str | None = None) -> None:
    """Raise UsageError if there are `faults`, by their places in the YAML file `path`, loaded."""
    if faults:
        lines = parsing.parse_yaml(_read(path, parsing.YAML_BYTES)).lines
        raise UsageError("\n".join(
            f"{path}:{parsing.line_of(lines, where)}: {parsing.dotted(where)}: {fault}"
            for where, fault in faults.items()
        ), hint=hint)


def load_json(model: type[M], path: Path) -> M:
    """Read `path` as JSON into `model`; see `load`: a fault has its line if YAML reads the text.

    YAML reads most of JSON, but not all: a tab that indents, or some letters of names, are other
    things to it. It is slow, too, and asked only where something is wrong.
    """
    content = read_json(path)
    try:
        return model.model_validate(content)
    except ValidationError:
        return _validated(model, content, _lines_of_json(path), path)


def read_json(path: Path) -> object:
    """Return what the JSON file `path` holds.

    Raises:
        UsageError: the file is missing, or is no JSON.
    """
    try:
        return parsing.parse_json(_read(path, parsing.JSON_BYTES))
    except parsing.Malformed as error:
        raise UsageError(_at(path, error)) from error


def refuse_json(path: Path, faults: Sequence[tuple[Location, str]]) -> NoReturn:
    """Raise UsageError with `faults`, by their places in the JSON file `path`, as `load_json`."""
    lines = _lines_of_json(path)
    raise UsageError("\n".join(_line(path, lines, where, problem) for where, problem in faults))


def _lines_of_json(path: Path) -> dict[Location, int] | None:
    try:
        return parsing.parse_yaml(_read(path, parsing.JSON_BYTES)).lines
    except parsing.Malformed:
        return None


def _at(path: Path, error: parsing.Malformed) -> str:
    return f"{path}: {error}" if error.line is None else f"{path}:{error.line}: {error}"


def _read(path: Path, limit: int) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(limit + 1)
        if len(found) > limit:
            raise UsageError(f"{path} is larger than {limit / 1e6:,.0f} MB")
        return found.decode("utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error


def _validated(model: type[M], content: object, lines: dict[Location, int] | None, path: Path) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = [_describe(path, lines, fault, model) for fault in error.errors()]
        raise UsageError("\n".join(faults)) from error


def _describe(
    path: Path, lines: dict[Location, int] | None, fault: ErrorDetails, model: type[Model]
) -> str:
    where: Location = tuple(part for part in fault["loc"] if part != "[key]")
    problem = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        allowed = _allowed_keys(model, where[:-1])
        problem = "unknown key" + (f" (allowed: {', '.join(allowed)})" if allowed else "")
    elif fault["type"] == "missing":
        problem = "is missing"
    elif fault["type"] != HIDDEN and not isinstance(fault["input"], dict):
        problem = f"{problem} (found: {excerpt(fault['input'])})"
    return _line(path, lines, where, problem)


def _line(path: Path, lines: dict[Location, int] | None, where: Location, problem: str) -> str:
    place = f"{path}" if lines is None else f"{path}:{parsing.line_of(lines, where)}"
    return f"{place}: {parsing.dotted(where) or 'the file'}: {problem}"


def _allowed_keys(model: type[Model], where: Location) -> list[str]:
    """Return the keys that `model` allows at `where`, as far as plain nesting tells."""
    current: object = model
    for part in where:
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            return []
        info = next((f for n, f in current.model_fields.items() if part in (n, f.alias)), None)
        current = _inner_model(info.annotation) if info else None
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [field.alias or name for name, field in current.model_fields.items()]
    return []


def _inner_model(annotation: object) -> object:
    """Return the model inside `X | None`, `list[X]`, `dict[str, X]`, or the annotation itself."""
    arguments = getattr(annotation, "__args__", ())
    models = [a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)]
    return models[0] if len(models) == 1 else annotation
