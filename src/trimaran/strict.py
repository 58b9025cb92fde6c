"""Read YAML and JSON files into strict models; an error lists all faults with keys and lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from trimaran import parsing
from trimaran.architectures import other_name
from trimaran.errors import UsageError, unreadable
from trimaran.parsing import Location
from trimaran.terminal_safety import excerpt

DIGEST = r"^sha256:[0-9a-f]{64}$"
Digest = Annotated[str, Field(pattern=DIGEST)]
"""Digest of an image in a registry, a recipe or a record."""

Finite = Annotated[float, Field(allow_inf_nan=False)]

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Model(BaseModel):
    """The base class of all models of files: frozen, and unknown keys are errors."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=False, populate_by_name=True,
        defer_build=True,  # a command uses few of the models
    )


M = TypeVar("M", bound=Model)

HIDDEN = "hidden"
"""Type of a PydanticCustomError whose message must not quote the input, such as a password."""

CONTRADICTION = "contradiction"
"""Type of a PydanticCustomError for values that are valid alone but contradict each other."""


class Problem(NamedTuple):
    """A fault in the content of a file: its key path, its message, and pydantic's error type."""

    where: Location
    text: str
    type: str


def contradiction(text: str) -> PydanticCustomError:
    """Return the error that a validator raises if values contradict each other."""
    return PydanticCustomError(CONTRADICTION, "{text}", {"text": text})


def load(model: type[M], path: Path) -> M:
    """Read `path` as YAML into `model`.

    Raises:
        UsageError: the file is missing, is not YAML, or violates the model; the message has a
            line `file:line: key: problem` for each fault.
    """
    return load_one(lambda content: model, path)


def load_one(choose: Callable[[object], type[M]], path: Path) -> M:
    """Read `path` as YAML into the model that `choose` returns for its content; see `load`."""
    try:
        document = parsing.parse_yaml(_read(path, parsing.YAML_BYTES))
    except parsing.Malformed as error:
        raise UsageError(_at(path, error), code="file-invalid") from error
    return _validated(choose(document.content), document.content, document.lines, path)


def refuse(path: Path, faults: Mapping[Location, str], hint: str | None = None) -> None:
    """Raise an error for faults that were found after the YAML file `path` was loaded.

    Args:
        path: the file.
        faults: key path in the file -> message about the fault; {} raises no error.
        hint: hint of the error.

    Raises:
        UsageError: `faults` is not empty; each line has file, line, key and problem.
    """
    if faults:
        lines = parsing.parse_yaml(_read(path, parsing.YAML_BYTES)).lines
        raise UsageError("\n".join(_line(path, lines, *fault) for fault in faults.items()),
                         code="file-invalid", hint=hint)


def load_json(model: type[M], path: Path) -> M:
    """Read `path` as JSON into `model`; see `load`.

    The YAML parser determines the lines of faults, because the JSON parser does not report them.
    It is used only for faulty files, because it is slow. It cannot read every JSON text (for
    example tabs as indentation), so that the line of a fault may be missing.
    """
    content = read_json(path)
    try:
        return model.model_validate(content)
    except ValidationError:
        return _validated(model, content, lines_of_json(path), path)


def problems(model: type[M], content: object) -> list[Problem]:
    """Return the faults that `model` finds in `content`, a parsed file; [] if it is valid."""
    try:
        model.model_validate(content)
    except ValidationError as error:
        return [_problem(fault, model) for fault in error.errors()]
    return []


def read_json(path: Path) -> object:
    """Return the content of the JSON file `path`.

    Raises:
        UsageError: the file is missing or is not JSON.
    """
    try:
        return parsing.parse_json(_read(path, parsing.JSON_BYTES))
    except parsing.Malformed as error:
        raise UsageError(_at(path, error), code="file-invalid") from error


def refuse_json(path: Path, faults: Sequence[tuple[Location, str]]) -> NoReturn:
    """Raise an error for faults (key path and problem) of the JSON file `path`.

    Raises:
        UsageError: always; each line has file, key and problem, and the line if it is known.
    """
    lines = lines_of_json(path)
    raise UsageError("\n".join(_line(path, lines, where, problem) for where, problem in faults),
                     code="file-invalid")


def lines_of_json(path: Path) -> dict[Location, int] | None:
    """Return key path -> line number for a JSON file; None if the YAML parser cannot read it."""
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
            raise UsageError(f"{path} is larger than {limit / 1e6:,.0f} MB", code="file-too-large")
        return found.decode("utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})",
                         code="file-invalid") from error


def _validated(model: type[M], content: object, lines: dict[Location, int] | None, path: Path) -> M:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = [_problem(fault, model) for fault in error.errors()]
        faults = [_line(path, lines, one.where, one.text) for one in found]
        raise UsageError("\n".join(faults), code="file-invalid") from error


def _problem(fault: ErrorDetails, model: type[Model]) -> Problem:
    where: Location = tuple(part for part in fault["loc"] if part != "[key]")
    problem = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        allowed = _allowed_keys(model, where[:-1])
        problem = "unknown key" + (f" (allowed: {', '.join(allowed)})" if allowed else "")
    elif fault["type"] == "missing":
        problem = "is missing"
    elif fault["type"] == "string_pattern_mismatch" and fault["ctx"]["pattern"] == DIGEST:
        problem = f"not sha256: and 64 hexadecimal digits (found: {excerpt(fault['input'])})"
    elif fault["type"] != HIDDEN and not isinstance(fault["input"], dict):
        name = other_name(fault["input"]) if fault["type"] == "literal_error" else ""
        problem = f"{problem} (found: {excerpt(fault['input'])})" + (f"; {name}" if name else "")
    return Problem(where, problem, fault["type"])


def _line(path: Path, lines: dict[Location, int] | None, where: Location, problem: str) -> str:
    place = f"{path}" if lines is None else f"{path}:{parsing.line_of(lines, where)}"
    return f"{place}: {parsing.dotted(where) or 'the file'}: {problem}"


def _allowed_keys(model: type[Model], where: Location) -> list[str]:
    """Return the keys that `model` allows below the key path `where`.

    Return [] if `where` does not lead to a single inner model, for example because of a union.
    """
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
    """Return the model X in `X | None`, `list[X]` or `dict[str, X]`, or the annotation itself."""
    arguments = getattr(annotation, "__args__", ())
    models = [a for a in arguments if isinstance(a, type) and issubclass(a, BaseModel)]
    return models[0] if len(models) == 1 else annotation
