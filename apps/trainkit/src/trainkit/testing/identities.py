"""Find the settings that the user may change when a training resumes.

These are the settings that are not part of the `identity`, which each checkpoint records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


def may_change(settings: S, identity: Callable[[S], Mapping[str, Any]]) -> set[str]:
    """Return the names of the settings whose value does not change the result of `identity`."""
    before = identity(settings)
    return {
        field.name for field in dataclasses.fields(settings)
        if identity(dataclasses.replace(settings, **{field.name: "another"})) == before
    }
