"""The parts of the check `gpu_check.py`, such as the training rate of one app.

Each part is measured in a process of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MOST_MINUTES = 24 * 60
"""Largest value of --minutes, the time limit of the whole check."""

Document = dict[str, Any]
"""The content of the evidence file, or a part of it."""

Report = Callable[..., None]
"""Function `report(name, value, unit="", **more)`, which sends a result to the parent process."""


class NotHereError(Exception):
    """Error of a part that this device or installation does not support; it is not a failure."""


@dataclass(frozen=True)
class Part:
    """A part of the check, implemented by the module of the same name.

    Attributes:
        name: name of the part and of its module in this package.
        title: description of what the part measures.
        least: minimum time in seconds; if less time is left, the part is not started on a GPU.
        share: maximum time in seconds of the part in a check of 8 minutes.
    """

    name: str
    title: str
    least: float
    share: float


PARTS = (
    Part("ceiling", "device, and rates of matrix products", 15, 45),
    Part("resnet_rate", "ResNet-50 (on a CPU, ResNet-18), synthetic images", 30, 150),
    Part("language_rate", "language model, random tokens", 25, 90),
    Part("parity", "losses on the device and on the CPU", 20, 60),
    Part("futuregan_rate", "FutureGAN at 128 pixels (on a CPU, 8), random clips", 20, 60),
    Part("collective", "all-reduce with one rank", 10, 25),
    Part("dali", "DALI's operations on the GPU", 10, 25),
)
"""All parts of the check `gpu_check.py` in order of execution, the most valuable one first."""


def minutes(text: str) -> float:
    """Parse a positive number of minutes, a day at most.

    Raises:
        argparse.ArgumentTypeError: the text is not a number in this range.
    """
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found <= MOST_MINUTES:
        raise argparse.ArgumentTypeError(
            f"must be minutes, more than 0 and at most {MOST_MINUTES}, got '{text[:40]}'"
        )
    return found
