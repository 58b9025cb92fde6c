"""Assumed values of recipes and targets: no source states them, or the source was not read.

Each assumption is a pair of the key path of a value and the reason for this value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

Assumed = Annotated[
    dict[str, Annotated[str, Field(min_length=1)]],
    Field(default_factory=dict, description="key path of a value that no source states, such as"
          " `args.base-lr` -> the reason for this value"),
]

Unchecked = Annotated[
    dict[str, Annotated[str, Field(min_length=1)]],
    Field(default_factory=dict, description="key path of a value whose source was not read for this"
          " file, such as `device.watts` -> where the value should be looked up"),
]

_MISSING = object()


def check(marked: Mapping[str, str], content: Mapping[str, Any], key: str = "assumed") -> None:
    """Check that each key path of `marked` names a value in `content`.

    Args:
        marked: key paths with dots. A number in a path selects an item of a list, or one run
            (point) of a series.
        content: the values, as JSON data.
        key: the name of `marked` in the file.

    Raises:
        ValueError: A key path names no value.
    """
    for path in marked:
        if _value(content, path) in (_MISSING, None):
            raise ValueError(f"{key}: '{path}' names no value of this file")


def _value(content: object, path: str) -> object:
    for part in path.split("."):
        if isinstance(content, Mapping):
            content = {str(key): value for key, value in content.items()}.get(part, _MISSING)
        elif isinstance(content, list) and part.isdecimal() and int(part) < len(content):
            content = content[int(part)]
        else:
            return _MISSING
    return content


def of_point(assumed: Mapping[str, str], number: int, own: Mapping[str, Any]) -> dict[str, str]:
    """Return the assumptions that are valid for one run (point) of a series: key path -> reason.

    The recipe of the series states assumptions on all runs and on single runs. The key path
    `series.points.8.args.strategy` becomes `args.strategy` in the result for run 8.

    Args:
        assumed: all assumptions in the recipe of the series: key path -> reason.
        number: number of the run in the series, such as 8.
        own: values with which this run replaces values of the recipe. Assumptions on the replaced
            values are left out.
    """
    prefix, found = f"series.points.{number}.", {}
    for path, reason in assumed.items():
        if path.startswith(prefix):
            found[path.removeprefix(prefix)] = reason
        elif not path.startswith("series.") and _value(own, path) is _MISSING:
            found[path] = reason
    return found


def unchanged(
    assumed: Mapping[str, str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> dict[str, str]:
    """Return the assumptions whose values are equal in two versions of a recipe."""
    return {path: reason for path, reason in assumed.items()
            if _value(before, path) == _value(after, path)}


def lines(assumed: Mapping[str, str], content: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each assumed value, such as `args.base-lr: 0.1`, with its reason.

    If a key path stands for several values, as `series` does, its line has no value.
    """
    for path, reason in assumed.items():
        value = _value(content, path)
        if isinstance(value, bool):
            value = str(value).lower()  # as in YAML
        elif isinstance(value, float):
            value = f"{value:.10g}"
        yield (path if isinstance(value, Mapping | list) else f"{path}: {value}"), reason
