"""Find the settings that may change when a training resumes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


def may_change(settings: S, identity: Callable[[S], Mapping[str, Any]]) -> set[str]:
    """Return the names of the settings that do not affect the `identity` of an app's training."""
    before = identity(settings)
    return {
        field.name for field in dataclasses.fields(settings)
        if identity(dataclasses.replace(settings, **{field.name: "another"})) == before
    }
