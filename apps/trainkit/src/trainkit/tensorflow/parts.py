"""What a checkpoint keeps of TensorFlow: variables, as arrays without a framework.

Everything that changes in a training is a variable: weights, the slots of an optimizer
(`optimizer.variables`, the loss scale among them), batch statistics (`model.variables`), and
the state of a `tf.random.Generator` (`generator.state`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainkit import parts
from trainkit.statefile import KINDS, Foreign


class Variables:
    """Variables as a part of a checkpoint.

    They are told apart by their order, which an app decides: names that Keras makes up differ
    with what was built before in a process.

    Args:
        variables: of TensorFlow or Keras.
    """

    def __init__(self, variables: Iterable[Any]) -> None:
        self._variables = [plain(variable) for variable in variables]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of their values, bit by bit."""
        return {str(number): kept(own.numpy()) for number, own in enumerate(self._variables)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put the values of a `state_dict` back, bit by bit.

        Raises:
            ValueError: they are of other variables.
        """
        values = {name: given(value) for name, value in state.items()}
        own = {str(number): variable for number, variable in enumerate(self._variables)}
        parts.check_shapes(
            {name: tuple(variable.shape) for name, variable in own.items()},
            {name: value.shape for name, value in values.items()},
        )
        for name, variable in own.items():
            if variable.dtype.as_numpy_dtype != values[name].dtype.type:
                raise ValueError(
                    f"variable {name} ({variable.name}) is {variable.dtype.name}, and "
                    f"{values[name].dtype.name} in the checkpoint"
                )
        for name, variable in own.items():
            variable.assign(values[name])


def kept(array: NDArray[Any]) -> NDArray[Any] | Foreign:
    """Return a copy of `array` as a checkpoint holds it."""
    if array.dtype.kind in KINDS:
        return np.array(array)
    return Foreign(np.array(array).view(f"u{array.dtype.itemsize}"), array.dtype.name)


def given(value: NDArray[Any] | Foreign) -> NDArray[Any]:
    """Return the array that a checkpoint holds, in the type that it has in TensorFlow.

    Raises:
        ValueError: TensorFlow knows no such type.
    """
    if not isinstance(value, Foreign):
        return value
    try:
        return value.bits.view(tf.dtypes.as_dtype(value.dtype).as_numpy_dtype)
    except TypeError as error:
        raise ValueError(f"the checkpoint has values of type {value.dtype}") from error


def plain(variable: Any) -> tf.Variable:
    """Return the variable of TensorFlow in one of Keras 3, or `variable` if it is one."""
    return variable if callable(variable.value) else variable.value


def digest(variables: Iterable[Any]) -> str:
    """Return a SHA-256 over the values of `variables`."""
    total = hashlib.sha256()
    for variable in variables:
        total.update(plain(variable).numpy().tobytes())
    return total.hexdigest()
