"""Fit the time of an operation as alpha + beta * bytes, separately for each range of sizes.

alpha is the time of a message without content, and beta the time per byte: the model of Hockney
("The communication challenge for MPP", Parallel Computing 20, 1994, pp. 389-398), who also defines
n_half = alpha / beta, the size at which half of the bandwidth 1 / beta is reached. MPI libraries
change the protocol at some size, so that a model holds for a range of sizes (Hoefler et al.,
"Low-Overhead LogGP Parameter Assessment for Modern Interconnection Networks", IPDPS 2007).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

LEAST = 4
"""Smallest number of sizes in a range: two for its line, and two that can contradict it."""

FLOOR = 0.02
"""Relative error below which a fitted line counts as exact.

Without this limit, noise would split the measured sizes into too many ranges.
"""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Range:
    """The model for one range of sizes.

    Attributes:
        from_bytes: smallest size in bytes.
        to_bytes: largest size in bytes.
        alpha_us: time of a message without content, in microseconds.
        gb_s: 1 / beta in GB/s, or null if the time does not grow with the size.
        n_half_bytes: alpha / beta in bytes, or null if `gb_s` is null.
        error: root mean square of the relative errors of the model in this range.
    """

    from_bytes: int
    to_bytes: int
    alpha_us: float
    gb_s: float | None
    n_half_bytes: float | None
    error: float


@dataclass(frozen=True)
class Fit:
    """The fitted time of one operation.

    Attributes:
        operation: name of the operation.
        ranges: the ranges in the order of their sizes.
        breaks_bytes: sizes at which another model begins, probably with another protocol.
    """

    operation: str
    ranges: list[Range]
    breaks_bytes: list[int]


def fit(operation: str, sizes: Sequence[int], seconds: Sequence[float]) -> Fit | None:
    """Fit the times of an operation at increasing sizes by a straight line in each range of sizes.

    The squares of the relative errors are minimized, so that small sizes count as much as large
    ones. For each number of ranges, dynamic programming finds the best limits of the ranges (Bai
    and Perron, "Computation and analysis of multiple structural change models", Journal of Applied
    Econometrics 18, 2003). The function `criterion` has its minimum at the chosen number of ranges.

    Args:
        operation: name of the operation.
        sizes: sizes in bytes, increasing.
        seconds: time at each size.

    Returns:
        The fit, or None for fewer than `LEAST` sizes.
    """
    if len(sizes) < LEAST:
        return None
    x, y = np.array(sizes, dtype=float), np.array(seconds, dtype=float)
    bounds = _bounds(x, y)
    ranges = [
        _range(sizes[start:end], *line(x[start:end], y[start:end])) for start, end in bounds
    ]
    return Fit(operation, ranges, [one.from_bytes for one in ranges[1:]])


def line(x: Array, y: Array) -> tuple[float, float, float]:
    """Return alpha and beta >= 0 with the least sum of squared relative errors, and this sum."""
    design = np.stack([1 / y, x / y], axis=1)
    scale = np.linalg.norm(design, axis=0)
    alpha, beta = np.linalg.lstsq(design / scale, np.ones(len(y)), rcond=None)[0] / scale
    if beta < 0:
        alpha, beta = float((1 / y).sum() / (1 / y**2).sum()), 0.0
    elif alpha < 0:
        alpha, beta = 0.0, float((x / y).sum() / ((x / y) ** 2).sum())
    return float(alpha), float(beta), float((((alpha + beta * x) / y - 1) ** 2).sum())


def criterion(points: int, ranges: int, squares: float) -> float:
    """Return a criterion whose minimum determines the number of ranges.

    It is the criterion of Liu, Wu and Zidek ("On segmented multivariate regression", Statistica
    Sinica 7, 1997, with their constants 0.299 and 2.1). The Bayesian information criterion has a
    smaller penalty, and finds breaks in noise if there are only about twenty points. Each
    range has two parameters, and each break is another parameter.

    Args:
        points: number of sizes.
        ranges: number of ranges.
        squares: sum of the squared relative errors.
    """
    parameters = 3 * ranges - 1
    if points <= parameters:
        return math.inf
    variance = squares / (points - parameters) + FLOOR**2
    penalty: float = parameters * 0.299 * math.log(points) ** 2.1 / points
    return math.log(variance) + penalty


def _bounds(x: Array, y: Array) -> list[tuple[int, int]]:
    """Divide the measured sizes into ranges so that `criterion` has its minimum.

    Returns:
        The indices (start, end) of each range.
    """
    count = len(x)

    @cache
    def squares(start: int, end: int) -> float:
        error: float = line(x[start:end], y[start:end])[2]
        return error

    @cache
    def best(ranges: int, end: int) -> tuple[float, tuple[tuple[int, int], ...]]:
        """Divide the sizes before index `end` into `ranges` ranges with the least squared errors.

        Returns:
            The sum of the squared errors, and the indices (start, end) of each range.
        """
        if ranges == 1:
            return squares(0, end), ((0, end),)
        return min(
            (before + squares(start, end), (*bounds, (start, end)))
            for start in range(LEAST * (ranges - 1), end - LEAST + 1)
            for before, bounds in [best(ranges - 1, start)]
        )

    chosen = min(
        range(1, count // LEAST + 1),
        key=lambda ranges: criterion(count, ranges, best(ranges, count)[0]),
    )
    return list(best(chosen, count)[1])


def _range(sizes: Sequence[int], alpha: float, beta: float, squares: float) -> Range:
    return Range(
        sizes[0], sizes[-1], alpha * 1e6, 1e-9 / beta if beta else None,
        alpha / beta if beta else None, math.sqrt(squares / len(sizes)),
    )
