"""Check a JSON document against dataclasses: every fault at once, each with its place.

A field of such a dataclass is made by `entry`, with the check of its value. There is no Pydantic
here, because the images of the apps do not have it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

Where = tuple["str | int", ...]
"""The place of a value: keys and positions, from the outside to the inside."""

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """What is wrong at a place.

    Attributes:
        where: the place.
        problem: what is wrong, for example "is missing".
        told: whether `value` helps to understand the problem.
        value: what was found there.
    """

    where: Where
    problem: str
    told: bool = False
    value: object = None


class Malformed(ValueError):  # noqa: N818 - says what the document is
    """A document breaks its schema.

    Attributes:
        faults: all of them, in the order of the schema.
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
        strict: whether keys that the schema does not have are faults.
        faults: those that were found.
    """

    strict: bool
    faults: list[Fault] = field(default_factory=list)

    def fault(self, where: Where, problem: str, value: object) -> None:
        """Note that `value` is wrong."""
        told = not isinstance(value, (dict, list))
        self.faults.append(Fault(where, problem, told, value if told else None))


Check = Callable[[Checking, Where, object], Any]
"""Returns the value to keep; notes a fault where there is none."""


def entry(check: Check, **options: Any) -> Any:
    """Return a field of a dataclass whose value has to pass `check`."""
    return field(metadata={"check": check}, **options)


def parse(cls: type[T], document: object, *, strict: bool) -> T:
    """Return `document` as the dataclass `cls`, whose fields are made by `entry`.

    Raises:
        Malformed: it breaks the schema; with `strict` also by keys that `cls` does not have.
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
    """Return the check of an object with the fields of the dataclass `cls`."""
    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, dict):
            return checking.fault(where, "is no object of keys and values", value)
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
    """Return the check of a text, all of which matches `pattern`."""
    compiled = re.compile(pattern) if pattern else None

    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, str):
            return checking.fault(where, "is no text", value)
        if compiled is not None and compiled.fullmatch(value) is None:
            return checking.fault(where, problem, value)
        return value

    return check


def whole(checking: Checking, where: Where, value: object) -> Any:
    """Check a whole number of 0 or more."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return checking.fault(where, "is no whole number of 0 or more", value)


def number(checking: Checking, where: Where, value: object) -> Any:
    """Check a finite number."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return checking.fault(where, "is no finite number", value)


def one_of(*known: object) -> Check:
    """Return the check of a value that is one of `known`."""
    def check(checking: Checking, where: Where, value: object) -> Any:
        if any(type(value) is type(one) and value == one for one in known):
            return value
        return checking.fault(where, f"is not one of {', '.join(map(str, known))}", value)

    return check


def optional(inner: Check) -> Check:
    """Return the check of what may be null."""
    return lambda checking, where, value: (
        None if value is None else inner(checking, where, value)
    )


def listed(inner: Check) -> Check:
    """Return the check of a list of values that pass `inner`."""
    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, list):
            return checking.fault(where, "is no list", value)
        return [inner(checking, (*where, at), one) for at, one in enumerate(value)]

    return check


def mapped(key: Check, inner: Check) -> Check:
    """Return the check of an object whose keys pass `key` and whose values pass `inner`."""
    def check(checking: Checking, where: Where, value: object) -> Any:
        if not isinstance(value, dict):
            return checking.fault(where, "is no object of keys and values", value)
        return {
            key(checking, (*where, name), name): inner(checking, (*where, name), one)
            for name, one in value.items()
        }

    return check


def plain(value: object) -> object:
    """Return dataclasses as JSON has them, without what is at its default."""
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
