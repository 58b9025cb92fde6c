"""`collectives.json`: all measured points and fits of a run, for other programs.

The README documents the file. Writers and readers use the same dataclasses, and a reader refuses a
file with a missing or an unknown key, or with a value of another type.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from collectives.fit import Fit
from collectives.settings import OPERATIONS
from trainkit import atomic
from trainkit.exits import DataError

NAME = "collectives.json"
SCHEMA = 1

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Spread:
    """The times of the repetitions in seconds: the smallest, the quartiles and the largest."""

    min: float
    q1: float
    median: float
    q3: float
    max: float


@dataclasses.dataclass(frozen=True)
class Point:
    """One operation at one size.

    Attributes:
        operation: name of the operation.
        size: size in bytes that the options request.
        bytes: measured size in bytes, with a whole number of elements in each block; 0 for a
            barrier.
        iterations: calls in a repetition.
        seconds: time of the operation on the slowest rank.
        mean_seconds: median over the repetitions of the mean over the ranks.
        algbw_gb_s: algorithm bandwidth in GB/s, from the median time; null for a barrier.
        busbw_gb_s: bus bandwidth in GB/s; null for a barrier.
    """

    operation: str
    size: int
    bytes: int
    iterations: int
    seconds: Spread
    mean_seconds: float
    algbw_gb_s: float | None
    busbw_gb_s: float | None


@dataclasses.dataclass(frozen=True)
class Results:
    """The content of `collectives.json`.

    Attributes:
        schema: version of the format.
        library: mpi, torch or horovod.
        backend: name and version of the communication software, as the library reports it.
        device: kind of the memory: cpu or cuda.
        dtype: number format.
        ranks: number of ranks.
        hosts: host of each rank, in the order of the ranks.
        repetitions: timed repetitions of each size.
        fusion_tensors: number of tensors of an all-reduce of Horovod.
        left_out: operation that the library does not have -> reason.
        points: the measured points, in the order of the measurement.
        fits: the fitted time of each operation with enough sizes.
    """

    schema: int
    library: str
    backend: str
    device: str
    dtype: str
    ranks: int
    hosts: list[str]
    repetitions: int
    fusion_tensors: int
    left_out: dict[str, str]
    points: list[Point]
    fits: list[Fit]


def write(folder: Path, results: Results) -> None:
    """Write `collectives.json` to `folder`, atomically."""
    atomic.write_json(folder / NAME, dataclasses.asdict(results))


def read(folder: Path) -> Results:
    """Read the `collectives.json` of the run in `folder`.

    Raises:
        DataError: the file is missing or not in this format.
    """
    path = folder / NAME
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise DataError(
            f"{path} does not exist; --out is the folder of a finished measurement",
            code="metrics-missing",
        ) from error
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", code="file-unreadable"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: {error}", code="metrics-invalid") from error
    return parse(document, str(path))


def parse(document: object, place: str) -> Results:
    """Return the results in the parsed JSON `document`; `place` is its name in messages.

    Raises:
        DataError: the document is not in this format.
    """
    if isinstance(document, dict) and document.get("schema") != SCHEMA:
        raise DataError(
            f"{place}: schema is {document.get('schema')!r}, and this version reads {SCHEMA}",
            code="metrics-invalid",
        )
    try:
        found: Results = _made(Results, document, "")
        _check(found)
    except ValueError as error:
        raise DataError(f"{place}: {error}", code="metrics-invalid") from error
    return found


def _check(found: Results) -> None:
    """Refuse values that have the right type, but that no measurement yields.

    Raises:
        ValueError: there is such a value; the message contains its position.
    """
    for number, point in enumerate(found.points):
        if point.operation not in OPERATIONS:
            raise ValueError(
                f"points[{number}].operation is {point.operation[:40]!r}, which is not an operation"
            )
    measured = {one.operation for one in found.points}
    for number, fit in enumerate(found.fits):
        where = f"fits[{number}]"
        if fit.operation not in measured:
            raise ValueError(f"{where}.operation is {fit.operation[:40]!r}, which has no points")
        for place, one in enumerate(fit.ranges):
            if not 0 < one.from_bytes <= one.to_bytes:
                raise ValueError(f"{where}.ranges[{place}]: from_bytes must be from 1 to to_bytes")
            if one.gb_s is not None and not one.gb_s > 0:
                raise ValueError(f"{where}.ranges[{place}].gb_s is {one.gb_s}, not positive")


def _made(kind: Any, value: Any, where: str) -> Any:
    """Convert `value`, parsed JSON, to `kind`: a dataclass, list, dict, number, text or union.

    Raises:
        ValueError: the value has another type; the message contains its position `where`.
    """
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _made(inner[0], value, where)
    if origin is list and isinstance(value, list):
        return [_made(inner[0], one, f"{where}[{number}]") for number, one in enumerate(value)]
    if origin is dict and isinstance(value, Mapping):
        return {key: _made(inner[1], one, f"{where}.{key}") for key, one in value.items()}
    if kind is float and type(value) in (int, float):
        return float(value)
    if type(value) is not kind:
        raise ValueError(f"{where or 'the document'} is {str(value)[:40]!r}, not a {_name(kind)}")
    return value


def _record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where or 'the document'} is not an object")
    kinds = typing.get_type_hints(kind)
    if kinds.keys() != value.keys():
        odd = ", ".join(sorted(map(str, kinds.keys() ^ value.keys())))
        raise ValueError(f"{where or 'the document'} has missing or unknown keys: {odd}")
    return kind(**{
        key: _made(kinds[key], one, f"{where}.{key}".lstrip(".")) for key, one in value.items()
    })


def _name(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))
