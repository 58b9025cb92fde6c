"""The named stateful parts of a training: everything that changes with its steps.

    parts = {"generator": …, "discriminator": …, "optimizer": …, "random": …}

`trainkit.torch.parts` and `trainkit.tensorflow.parts` wrap the objects of their framework as parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np

from trainkit.exits import DataError
from trainkit.pieces import Piece

SHOWN = 4  # maximum number of differing names in a message

Shape = tuple[int, ...]


class Part(Protocol):
    """A network, an optimizer, a loss scaler, or the state of a random generator."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state in types that `trainkit.statefile` stores.

        All ranks call this method at the same moment. The next step may change the returned arrays.
        """
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state; the arrays of the object keep their types and memory layout.

        Raises:
            ValueError: the state belongs to another object; the message names the difference.
        """
        ...


Parts = Mapping[str, Part]


def snapshot(parts: Parts) -> dict[str, Any]:
    """Return the state of each part; save or copy the states before the next step changes them."""
    return {name: dict(part.state_dict()) for name, part in parts.items()}


def not_finite(state: Any, name: str = "") -> Iterator[str]:
    """Yield the dotted names of all numbers and arrays in `state` with NaN or infinite values.

    `name` is the name of `state` itself, and the prefix of the names of its entries.
    """
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from not_finite(value, f"{name}.{key}" if name else str(key))
    elif isinstance(state, Piece):
        yield from not_finite(state.array, name)
    elif _is_float(state) and not np.isfinite(state).all():
        yield name


def restore(parts: Parts, state: Mapping[str, Any]) -> None:
    """Restore the parts from a `snapshot`.

    Raises:
        DataError: the snapshot has other parts, or a part does not fit; the message names the part.
    """
    if state.keys() != parts.keys():
        raise DataError(
            "the checkpoint is of a training with other parts "
            f"({', '.join(sorted(state))}; here {', '.join(sorted(parts))})",
            code="checkpoint-mismatch",
        )
    for name, part in parts.items():
        try:
            part.load_state_dict(state[name])
        except ValueError as error:
            raise DataError(
                f"the checkpoint does not fit: {name}: {error}", code="checkpoint-mismatch"
            ) from error


def check_shapes(own: Mapping[str, Shape], found: Mapping[str, Shape]) -> None:
    """Raise ValueError if the names or shapes of two sets of entries differ.

    Args:
        own: name -> shape of the entries of the network.
        found: name -> shape of the entries of a checkpoint.

    Raises:
        ValueError: the entries differ; the message names them.
    """
    faults = [
        _listed("has no", own.keys() - found.keys()),
        _listed("has, which is unknown here,", found.keys() - own.keys()),
        _listed("has another shape of", [
            f"{name} ({_text(found[name])}, here {_text(own[name])})"
            for name in own.keys() & found.keys() if own[name] != found[name]
        ]),
    ]
    if any(faults):
        raise ValueError("the checkpoint " + "; ".join(fault for fault in faults if fault))


def _is_float(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _listed(what: str, names: Iterable[str]) -> str:
    """Return `what` and the first few `names` as one text, or "" if there are no names."""
    ordered = sorted(names)
    more = f" and {len(ordered) - SHOWN} more" if len(ordered) > SHOWN else ""
    return f"{what} {', '.join(ordered[:SHOWN])}{more}" if ordered else ""


def _text(shape: Shape) -> str:
    return "x".join(map(str, shape)) or "a single number"
