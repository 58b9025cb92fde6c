"""Tests of named parts: each part is restored, or an error names it and the difference."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from trainkit import parts
from trainkit.exits import DataError
from trainkit.testing.refusals import refused


class Numbers:
    """A part of a checkpoint that contains named arrays."""

    def __init__(self, **arrays: list[float]) -> None:
        self.arrays = {name: np.array(values) for name, values in arrays.items()}

    def state_dict(self) -> Mapping[str, Any]:
        return self.arrays

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        parts.check_shapes(
            {name: array.shape for name, array in self.arrays.items()},
            {name: array.shape for name, array in state.items()},
        )
        self.arrays = dict(state)


def test_each_part_comes_back() -> None:
    state = parts.snapshot({"one": Numbers(a=[1.0]), "two": Numbers(a=[2.0], b=[3.0])})
    others = {"one": Numbers(a=[0.0]), "two": Numbers(a=[0.0], b=[0.0])}
    parts.restore(others, state)
    assert {name: float(part.arrays["a"][0]) for name, part in others.items()} == {
        "one": 1.0, "two": 2.0,
    }


@pytest.mark.parametrize(("then", "now"), [
    (["generator"], ["discriminator"]), (["average", "network"], ["network"]),
    (["network"], ["average", "network"]),
])
def test_other_parts_are_refused(then: list[str], now: list[str]) -> None:
    state = parts.snapshot({name: Numbers() for name in then})
    said = f"({', '.join(then)}; here {', '.join(now)})"
    with refused(DataError, "checkpoint-mismatch", said):
        parts.restore({name: Numbers() for name in now}, state)


@pytest.mark.parametrize(("found", "said"), [
    ({"a": [1.0]}, ["no b"]),
    ({"a": [1.0], "b": [1.0], "c": [1.0]}, ["unknown", ", c"]),
    ({"a": [1.0, 2.0], "b": [1.0]}, ["shape", " a (2, here 1)"]),
    ({f"x{n}": [] for n in range(9)}, ["no a, b;", ", x0, x1, x2, x3 and 5 more"]),
])
def test_a_part_that_does_not_fit_is_named_with_its_entries(
    found: dict[str, list[float]], said: list[str]
) -> None:
    state = parts.snapshot({"one": Numbers(**found)})
    with refused(DataError, "checkpoint-mismatch", ": one: ", *said):
        parts.restore({"one": Numbers(a=[0.0], b=[0.0])}, state)
