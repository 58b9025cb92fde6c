"""Strict files: every fault at once, each with its key and what is allowed.

YAML is written by hand, and its faults have lines too; JSON is written by programs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from trimaran.errors import UsageError


class Model(BaseModel):
    """Base of all file models: unknown keys are errors, values are not coerced, frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, populate_by_name=True)


M = TypeVar("M", bound=Model)
Location = tuple[str | int, ...]

HIDDEN = "hidden"
"""Type of a PydanticCustomError whose input is not to be repeated in the message."""


class _Loader(yaml.SafeLoader):
    """Safe YAML that refuses a key given twice instead of keeping the last."""


def _unique_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[object, object]:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if key in seen:
            raise yaml.MarkedYAMLError(
                problem=f"key '{key}' is given twice", problem_mark=key_node.start_mark
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


def load(model: type[M], path: Path) -> M:
    """Read `path` as YAML into `model`.

    Raises:
        UsageError: the file is missing, is no YAML, or breaks the model; the message
            has one line `file:line: key: problem` for each fault.
    """
    return load_one(lambda content: model, path)


def load_one(choose: Callable[[object], type[M]], path: Path) -> M:
    """Read `path` as YAML into the model that `choose` returns for its content; see `load`."""
    text = _read(path)
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - _Loader is a SafeLoader
        lines = _lines(yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}:{line}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}: {error}") from error
    return _validated(choose(content), content, lines, path)


def line(path: Path, where: Location) -> int:
    """Return the line of the key at `where` in the YAML file `path`, which has been loaded."""
    return _line(_lines(yaml.compose(_read(path), Loader=yaml.SafeLoader)), where)


def load_json(model: type[M], path: Path) -> M:
    """Read `path` as JSON into `model`; see `load`, but faults have no lines.

    YAML reads most of JSON, but not all: a tab that indents, or some letters of names, are other
    things to it.
    """
    text = _read(path)
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # a key twice, a huge number, a deep nest
        raise UsageError(f"{path}: {error}") from error
    return _validated(model, content, None, path)


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    seen: dict[str, object] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"key '{key}' is given twice")
        seen[key] = value
    return seen


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error


def _validated(
    model: type[M], content: object, lines: dict[Location, int] | None, path: Path
) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        faults = [_describe(path, lines, fault, model) for fault in error.errors()]
        raise UsageError("\n".join(faults)) from error


def _lines(node: yaml.Node | None, at: Location = ()) -> dict[Location, int]:
    """Return the 1-based line of every key and item below `node`."""
    found: dict[Location, int] = {}
    if node is not None and not at:
        found[()] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            found[at + (key.value,)] = key.start_mark.line + 1
            found |= _lines(value, (*at, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            found[at + (index,)] = value.start_mark.line + 1
            found |= _lines(value, (*at, index))
    return found


def _describe(
    path: Path, lines: dict[Location, int] | None, fault: ErrorDetails, model: type[Model]
) -> str:
    where: Location = tuple(part for part in fault["loc"] if part != "[key]")
    key = ".".join(str(part) for part in where) or "the file"
    problem = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        allowed = _allowed_keys(model, where[:-1])
        problem = "unknown key" + (f" (allowed: {', '.join(allowed)})" if allowed else "")
    elif fault["type"] == "missing":
        problem = "is missing"
    elif fault["type"] != HIDDEN and not isinstance(fault["input"], dict):
        problem = f"{problem} (found: {fault['input']!r})"
    place = f"{path}" if lines is None else f"{path}:{_line(lines, where)}"
    return f"{place}: {key}: {problem}"


def _line(lines: dict[Location, int], where: Location) -> int:
    # pydantic's location may hold names of union members, which the file does not have:
    # keep the longest part of it that the file does have.
    while where and where not in lines:
        where = where[:-1]
    return lines.get(where, 1)


def _allowed_keys(model: type[Model], where: Location) -> list[str]:
    """Return the keys that `model` allows at `where`, as far as plain nesting tells."""
    current: object = model
    for part in where:
        if not (isinstance(current, type) and issubclass(current, BaseModel)):
            return []
        info = next(
            (f for n, f in current.model_fields.items() if part in (n, f.alias)), None
        )
        current = _inner_model(info.annotation) if info else None
    if isinstance(current, type) and issubclass(current, BaseModel):
        return [field.alias or name for name, field in current.model_fields.items()]
    return []


def _inner_model(annotation: object) -> object:
    """Return the model inside `X | None`, `list[X]`, `dict[str, X]`, or the annotation itself."""
    arguments = getattr(annotation, "__args__", ())
    models = [a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)]
    return models[0] if len(models) == 1 else annotation
