"""Train with the strategy that the options name; each strategy has a file of its own."""

from __future__ import annotations

import importlib

from keras_resnet.settings import TrainSettings

FILES = {
    "single": "sequential", "mirrored": "mirrored", "multiworker": "multiworker",
    "parameter-server": "parameter_server", "horovod": "horovod",
}
"""Strategy -> the module that trains with it."""


def main(settings: TrainSettings) -> None:
    """Train as `settings` specify, and write all files below `settings.out`.

    Raises:
        AppError: the training failed; the error has the exit code of the app contract.
    """
    importlib.import_module(f"keras_resnet.{FILES[settings.strategy]}").main(settings)
