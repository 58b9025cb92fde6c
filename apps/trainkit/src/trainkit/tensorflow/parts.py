"""TensorFlow's variables as parts of a checkpoint, stored as arrays for any framework.

Everything that changes in a training is a variable: weights, the slots of an optimizer
(`optimizer.variables`, including the loss scale), batch statistics (`model.variables`), and the
state of a `tf.random.Generator` (`generator.state`).
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

    The variables are identified by their order, which the app determines, because the names that
    Keras generates depend on earlier models of the same process.

    Args:
        variables: variables of TensorFlow or Keras.
    """

    def __init__(self, variables: Iterable[Any]) -> None:
        self._variables = [plain(variable) for variable in variables]

    def state_dict(self) -> dict[str, Any]:
        """Return bit-identical copies of the values of the variables, by their number."""
        return {str(number): kept(own.numpy()) for number, own in enumerate(self._variables)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Assign the values of a `state_dict`, bit for bit, to the variables.

        Raises:
            ValueError: the values belong to other variables.
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
    """Return a copy of `array` for a checkpoint; types that NumPy lacks are stored as integers."""
    if array.dtype.kind in KINDS:
        return np.array(array)
    return Foreign(np.array(array).view(f"u{array.dtype.itemsize}"), array.dtype.name)


def given(value: NDArray[Any] | Foreign) -> NDArray[Any]:
    """Return the values of an array from a checkpoint in the TensorFlow type that was saved.

    Raises:
        ValueError: TensorFlow does not have the type of the array.
    """
    if not isinstance(value, Foreign):
        return value
    try:
        return value.bits.view(tf.dtypes.as_dtype(value.dtype).as_numpy_dtype)
    except TypeError as error:
        raise ValueError(f"the checkpoint has values of type {value.dtype}") from error


def plain(variable: Any) -> tf.Variable:
    """Return the variable inside a Keras 3 variable; a TensorFlow variable is returned as is."""
    return variable if callable(variable.value) else variable.value


def digest(variables: Iterable[Any]) -> str:
    """Return the SHA-256 of the values of `variables` in hexadecimal."""
    total = hashlib.sha256()
    for variable in variables:
        total.update(plain(variable).numpy().tobytes())
    return total.hexdigest()
