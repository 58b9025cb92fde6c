"""What a checkpoint keeps of TensorFlow: variables, as arrays without a framework.

Everything that changes in a training is a variable: weights, the slots of an optimizer
(`optimizer.variables`, the loss scale among them), batch statistics (`model.variables`), and
the state of a `tf.random.Generator` (`generator.state`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from trainkit.exits import DataError


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
        return {"values": [np.array(variable.numpy()) for variable in self._variables]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put the values of a `state_dict` back, bit by bit.

        Raises:
            DataError: they are of other variables.
        """
        values: list[NDArray[Any]] = state["values"]
        if len(values) != len(self._variables):
            raise DataError(
                f"the checkpoint has {len(values)} variables, the training {len(self._variables)}"
            )
        for variable, value in zip(self._variables, values, strict=True):
            own = (tuple(variable.shape), variable.dtype.as_numpy_dtype)
            if own != (value.shape, value.dtype.type):
                raise DataError(
                    f"variable {variable.name} is {own[1].__name__}{list(own[0])}, and "
                    f"{value.dtype.name}{list(value.shape)} in the checkpoint"
                )
        for variable, value in zip(self._variables, values, strict=True):
            variable.assign(value)


def plain(variable: Any) -> tf.Variable:
    """Return the variable of TensorFlow in one of Keras 3, or `variable` if it is one."""
    return variable if callable(variable.value) else variable.value


def digest(variables: Iterable[Any]) -> str:
    """Return a SHA-256 over the values of `variables`."""
    total = hashlib.sha256()
    for variable in variables:
        total.update(plain(variable).numpy().tobytes())
    return total.hexdigest()
