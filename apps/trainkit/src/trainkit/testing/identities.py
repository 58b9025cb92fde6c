"""Which settings a training that goes on shares with the one that it goes on with."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


def may_change(settings: S, identity: Callable[[S], Mapping[str, Any]]) -> set[str]:
    """Return the names of the settings that `identity` of an app does not tell apart."""
    before = identity(settings)
    return {
        field.name for field in dataclasses.fields(settings)
        if identity(dataclasses.replace(settings, **{field.name: "another"})) == before
    }
