"""Scores of many findings: AUROC with confidence intervals, average precision and accuracy.

The AUROC of a finding is undefined if no image or every image has the finding: it is then None, and
means ignore it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Interval = tuple[float, float]


def auroc(labels: Array, values: Array) -> float | None:
    """Return the area under the ROC curve.

    It is the probability that an image with the finding has a larger value than an image without
    it.

    The computation uses the ranks of the values, and mean ranks for equal values (Mann and Whitney;
    Hanley and McNeil, Radiology 143, 1982).

    Args:
        labels: 0 or 1, (n,).
        values: finite values, (n,).

    Returns:
        The area; None if it is undefined because all labels are equal.
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
    """Return the mean precision over the steps of recall, without interpolation.

    It is defined as in scikit-learn: the sum of (R_k - R_(k-1)) P_k, where R_k and P_k are recall
    and precision at the k-th largest distinct value.

    Args:
        labels: 0 or 1, (n,).
        values: finite values, (n,).

    Returns:
        The mean; None if it is undefined because no label is positive.
    """
    if not labels.sum():
        return None
    recall, precision = precision_recall(labels, values)
    return float((np.diff(recall, prepend=0) * precision).sum())


def precision_recall(labels: Array, values: Array) -> tuple[Array, Array]:
    """Return the recall and precision at each distinct value, from the largest value down."""
    true, false = _counts(labels, values)
    return true / labels.sum(), true / (true + false)


def roc(labels: Array, values: Array) -> tuple[Array, Array]:
    """Return the false and true positive rates at each distinct value, beginning with (0, 0)."""
    true, false = _counts(labels, values)
    return (np.append(0, false) / max(1, len(labels) - labels.sum()),
            np.append(0, true) / max(1, labels.sum()))


def _counts(labels: Array, values: Array) -> tuple[Array, Array]:
    """Return true and false positives at each distinct value, from the largest value down."""
    order = np.argsort(-values, kind="stable")
    last = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)
    true = np.cumsum(labels[order])[last]
    return true, last + 1 - true


def brier(labels: Array, probabilities: Array) -> float:
    """Return the mean squared difference between probability and label (Brier 1950)."""
    return float(np.square(probabilities - labels).mean())


def reliability(
    labels: Array, probabilities: Array, bins: int = 10
) -> list[tuple[float, float, int]]:
    """Return the calibration of probabilities, in bins of equal width; empty bins are left out.

    Returns:
        For each bin the mean probability, the fraction of images with the finding, and the number
        of images.
    """
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
        auroc: AUROC of each finding; None if it is undefined.
        precision: average precision of each finding; None if it is undefined.
        accuracy: fraction of correct decisions over all images and findings; a probability above
            0.5 counts as presence.
        images: number of images.
    """

    auroc: tuple[float | None, ...]
    precision: tuple[float | None, ...]
    accuracy: float
    images: int

    @property
    def mean_auroc(self) -> float | None:
        """The mean of all defined AUROCs, or None if no finding has a defined AUROC."""
        return mean(self.auroc)

    @property
    def defined(self) -> int:
        """The number of findings with a defined AUROC."""
        return sum(one is not None for one in self.auroc)


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the defined values; None if no value is defined."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def score(labels: Array, logits: Array) -> Scores:
    """Return the scores of the logits of all images against the labels, both (n, findings)."""
    columns = range(labels.shape[1])
    return Scores(
        tuple(auroc(labels[:, one], logits[:, one]) for one in columns),
        tuple(average_precision(labels[:, one], logits[:, one]) for one in columns),
        float(((logits > 0) == (labels > 0)).mean()), len(labels),
    )


@dataclass(frozen=True)
class Intervals:
    """Confidence intervals of AUROCs; an interval is None if its AUROC is undefined in all draws.

    Attributes:
        findings: interval of each finding.
        mean: interval of the mean AUROC; the mean of a draw ignores undefined AUROCs.
    """

    findings: tuple[Interval | None, ...]
    mean: Interval | None


def intervals(
    labels: Array, logits: Array, *, seed: int, draws: int = 1000, part: float = 0.95
) -> Intervals:
    """Return the bootstrap percentile intervals of the AUROCs.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13: images are resampled
    with replacement, and all findings use the same sample. If no image or every image of a sample
    has a finding, the finding is ignored in this sample.

    Args:
        labels: 0 or 1, (n, findings).
        logits: logits, (n, findings).
        seed: seed of the samples.
        draws: number of samples.
        part: confidence level.
    """
    draw, images = np.random.default_rng(seed), len(labels)
    areas = [_area(labels[:, at], logits[:, at]) for at in range(labels.shape[1])]
    found = []
    for _ in range(draws):
        times = np.bincount(draw.integers(0, images, images), minlength=images)
        found.append([area(times) for area in areas])
    each = tuple(_percentiles([one[at] for one in found], part) for at in range(len(areas)))
    return Intervals(each, _percentiles([mean(one) for one in found], part))


def _area(labels: Array, values: Array) -> Callable[[NDArray[np.int64]], float | None]:
    """Return a function that computes the AUROC of a bootstrap sample.

    The function takes the number of times that the sample contains each image. It returns None if
    the sample has no positive or no negative image. The values are sorted once, for all samples.
    """
    order = np.argsort(values, kind="stable")
    first = np.flatnonzero(np.diff(values[order], prepend=np.nan))  # index of each distinct value
    positive = labels[order] > 0

    def area(times: NDArray[np.int64]) -> float | None:
        drawn = times[order]
        with_it = np.add.reduceat(np.where(positive, drawn, 0), first)
        without = np.add.reduceat(np.where(positive, 0, drawn), first)
        pairs = int(with_it.sum()) * int(without.sum())
        below = np.cumsum(without) - without / 2  # equal values count half
        return float((with_it * below).sum() / pairs) if pairs else None

    return area


def _percentiles(values: Sequence[float | None], part: float) -> Interval | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, high = np.quantile(known, [(1 - part) / 2, (1 + part) / 2])
    return float(low), float(high)
