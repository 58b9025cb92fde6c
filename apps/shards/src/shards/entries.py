"""Check a JSON document against dataclasses, and report all faults with their positions.

`entry` returns a dataclass field with the check of its value. This module replaces
Pydantic, which the images of the apps do not contain.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Where = tuple["str | int", ...]
"""The position of a value in a document: keys and list positions, from the outermost inwards."""

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """A fault at one position in a document.

    Attributes:
        where: position of the fault.
        problem: description of the fault, for example "is missing".
        told: whether messages about the fault print `value`.
        value: the faulty value.
    """

    where: Where
    problem: str
    told: bool = False
    value: object = None


class Malformed(ValueError):  # noqa: N818 - an adjective that describes the document
    """Error for a document that violates its schema.

    Attributes:
        faults: all faults, in the order of the schema.
    """

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(
            f"{'.'.join(map(str, fault.where)) or 'the document'}: {fault.problem}"
            for fault in faults
        ))
        self.faults = faults


@dataclass
class Checking:
    """The check of one document.

    Attributes:
        strict: whether unknown keys are faults.
        faults: the faults of the document so far.
    """

    strict: bool
    faults: list[Fault] = field(default_factory=list)

    def fault(self, where: Where, problem: str, value: object) -> None:
        """Record a fault of `value` at `where`."""
        told = not isinstance(value, (dict, list))
        self.faults.append(Fault(where, problem, told, value if told else None))


Check = Callable[[Checking, Where, object], Any]
"""A function that returns the checked value, or records a fault and returns None."""


def entry(check: Check, **options: Any) -> Any:
    """Return a dataclass field whose value must pass `check`; `options` are passed to `field`."""
    return field(metadata={"check": check}, **options)


def parse(cls: type[T], document: object, *, strict: bool) -> T:
    """Check a decoded JSON document, and return it as an instance of the dataclass `cls`.

    Each field of `cls` must be declared with the function `entry`, which sets its check.

    Raises:
        Malformed: the document violates the schema, or has unknown keys while `strict` is true.
    """
    checking = Checking(strict)
    found: T = record(cls)(checking, (), document)
    if checking.faults:
        raise Malformed(checking.faults)
    return found


def _checked(
    checking: Checking, where: Where, document: dict[str, object], key: str, check: Check
) -> object:
    if key in document:
        return check(checking, (*where, key), document[key])
    checking.faults.append(Fault((*where, key), "is missing"))
    return None


def record(cls: type[Any]) -> Check:
    """Return a function that checks that a JSON object fits the dataclass `cls`.

    The function returns an instance of `cls`, or records the faults of the object and returns None.
    """
    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, dict):
            return checking.fault(where, "is not an object of keys and values", value)
        before, found, fields = len(checking.faults), {}, dataclasses.fields(cls)
        for one in fields:
            optional = one.default is not dataclasses.MISSING
            if one.name in value or not optional:
                found[one.name] = _checked(
                    checking, where, value, one.name, one.metadata["check"]
                )
        names = [one.name for one in fields]
        for key in value.keys() - set(names) if checking.strict else ():
            checking.faults.append(
                Fault((*where, key), f"unknown key (allowed: {', '.join(names)})")
            )
        return cls(**found) if len(checking.faults) == before else None

    return check


def text(pattern: str = "", problem: str = "") -> Check:
    """Return a check for a string that matches `pattern` completely.

    `problem` describes the fault of any other string.
    """
    compiled = re.compile(pattern) if pattern else None

    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, str):
            return checking.fault(where, "is not text", value)
        if compiled is not None and compiled.fullmatch(value) is None:
            return checking.fault(where, problem, value)
        return value

    return check


def whole(checking: Checking, where: Where, value: object) -> Any:
    """Return `value` if it is an integer >= 0; otherwise record a fault."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return checking.fault(where, "is not a whole number of 0 or more", value)


def number(checking: Checking, where: Where, value: object) -> Any:
    """Return `value` as a float if it is a finite number; otherwise record a fault."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return checking.fault(where, "is not a finite number", value)


def one_of(*known: object) -> Check:
    """Return a check for a value that equals an element of `known`, with the same type."""
    def check(checking: Checking, where: Where, value: object) -> Any:
        if any(type(value) is type(one) and value == one for one in known):
            return value
        return checking.fault(where, f"is not one of {', '.join(map(str, known))}", value)

    return check


def optional(inner: Check) -> Check:
    """Return a check that accepts null and every value that passes `inner`."""
    return lambda checking, where, value: (
        None if value is None else inner(checking, where, value)
    )


def listed(inner: Check) -> Check:
    """Return a check for a list of values that pass `inner`."""
    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, list):
            return checking.fault(where, "is not a list", value)
        return [inner(checking, (*where, at), one) for at, one in enumerate(value)]

    return check


def mapped(key: Check, inner: Check) -> Check:
    """Return a check for an object whose keys pass `key` and whose values pass `inner`."""
    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, dict):
            return checking.fault(where, "is not an object of keys and values", value)
        return {
            key(checking, (*where, name), name): inner(checking, (*where, name), one)
            for name, one in value.items()
        }

    return check


def plain(value: object) -> object:
    """Return `value` for JSON: dataclasses as objects, without fields that have default values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: plain(getattr(value, one.name)) for one in dataclasses.fields(value)
            if one.default is dataclasses.MISSING or getattr(value, one.name) != one.default
        }
    if isinstance(value, Mapping):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value
