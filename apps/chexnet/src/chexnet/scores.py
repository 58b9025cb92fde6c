"""Scores of many findings: AUROC, average precision, accuracy, and how sure they are.

A finding that no image has, or every one, has no AUROC: it is None, and left out of the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def auroc(labels: Array, values: Array) -> float | None:
    """Return the area under the ROC curve: how often a value with label 1 is above one with 0.

    By the ranks of the values, equal ones at their mean (Mann and Whitney; Hanley and McNeil,
    Radiology 143, 1982).

    Args:
        labels: 0 or 1, (n,).
        values: (n,), finite.
    """
    positive = int(labels.sum())
    negative = len(labels) - positive
    if not positive or not negative:
        return None
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[inverse]
    above = ranks[labels > 0].sum() - positive * (positive + 1) / 2
    return float(above / (positive * negative))


def average_precision(labels: Array, values: Array) -> float | None:
    """Return the mean precision over the steps of recall, without interpolation; None: no 1.

    As scikit-learn defines it: sum of (R_k - R_(k-1)) P_k over the distinct values, falling.
    """
    if not labels.sum():
        return None
    recall, precision = precision_recall(labels, values)
    return float((np.diff(recall, prepend=0) * precision).sum())


def precision_recall(labels: Array, values: Array) -> tuple[Array, Array]:
    """Return recall and precision at each distinct value, falling."""
    true, false = _counts(labels, values)
    return true / labels.sum(), true / (true + false)


def roc(labels: Array, values: Array) -> tuple[Array, Array]:
    """Return the rates of false and of true positives at each distinct value, from (0, 0) on."""
    true, false = _counts(labels, values)
    return (np.append(0, false) / max(1, len(labels) - labels.sum()),
            np.append(0, true) / max(1, labels.sum()))


def _counts(labels: Array, values: Array) -> tuple[Array, Array]:
    """Return how many with label 1, and with 0, are at or above each distinct value, falling."""
    order = np.argsort(-values, kind="stable")
    last = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)
    true = np.cumsum(labels[order])[last]
    return true, last + 1 - true


def brier(labels: Array, probabilities: Array) -> float:
    """Return the mean squared difference of probability and label (Brier 1950)."""
    return float(np.square(probabilities - labels).mean())


def reliability(
    labels: Array, probabilities: Array, bins: int = 10
) -> list[tuple[float, float, int]]:
    """Return mean probability, part with the finding, and images, of each bin that has some."""
    at = np.minimum((probabilities * bins).astype(int), bins - 1)
    return [
        (float(probabilities[at == one].mean()), float(labels[at == one].mean()),
         int((at == one).sum()))
        for one in range(bins) if (at == one).any()
    ]


@dataclass(frozen=True)
class Scores:
    """Scores of a split.

    Attributes:
        auroc: of each finding, None where it is undefined.
        precision: average precision of each.
        accuracy: part of all answers at probability 0.5 that are right.
        images: how many.
    """

    auroc: tuple[float | None, ...]
    precision: tuple[float | None, ...]
    accuracy: float
    images: int

    @property
    def mean_auroc(self) -> float | None:
        """The mean over the findings that have one."""
        return mean(self.auroc)

    @property
    def defined(self) -> int:
        """How many findings have an AUROC."""
        return sum(one is not None for one in self.auroc)


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of those that are there, or None."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def score(labels: Array, logits: Array) -> Scores:
    """Return the scores of all images, (n, findings)."""
    columns = range(labels.shape[1])
    return Scores(
        tuple(auroc(labels[:, one], logits[:, one]) for one in columns),
        tuple(average_precision(labels[:, one], logits[:, one]) for one in columns),
        float(((logits > 0) == (labels > 0)).mean()), len(labels),
    )


def interval(
    labels: Array, values: Array, *, seed: int, draws: int = 1000, part: float = 0.95
) -> tuple[float, float] | None:
    """Return the bootstrap interval of the AUROC of one finding, by percentiles.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13: images are drawn anew,
    with repetition. Draws without a positive or a negative one are left out.
    """
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(draws):
        chosen = draw.integers(0, len(labels), len(labels))
        if (one := auroc(labels[chosen], values[chosen])) is not None:
            found.append(one)
    if not found:
        return None
    low, high = np.quantile(found, [(1 - part) / 2, (1 + part) / 2])
    return float(low), float(high)
