"""Find the settings that the user may change when a training resumes.

Each checkpoint records the `identity` of its training: the settings that determine the weights. All
other settings may change.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

S = TypeVar("S", bound="DataclassInstance")


def may_change(settings: S, identity: Callable[[S], Mapping[str, Any]]) -> set[str]:
    """Return the names of the settings that the user may change when a training resumes.

    Args:
        settings: any valid settings of the training.
        identity: function that returns the settings that must stay equal.
    """
    before = identity(settings)
    return {
        field.name for field in dataclasses.fields(settings)
        if identity(dataclasses.replace(settings, **{field.name: "another"})) == before
    }
