"""Tests of the scores: they equal scikit-learn's scores, and are None if undefined."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as theirs

from chexnet import scores


@st.composite
def answers(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Draw labels that contain both 0 and 1, and values of which many are equal."""
    count = draw(st.integers(2, 60))
    labels = np.array([0, 1, *draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))])
    values = draw(st.lists(st.integers(-4, 4), min_size=len(labels), max_size=len(labels)))
    return labels.astype(float), np.array(values) / 3


@settings(deadline=None, max_examples=150)
@given(answers())
def test_areas_are_those_of_scikit_learn(given_: tuple[np.ndarray, np.ndarray]) -> None:
    labels, values = given_
    assert scores.auroc(labels, values) == pytest.approx(
        theirs.roc_auc_score(labels, values), abs=1e-9
    )
    assert scores.average_precision(labels, values) == pytest.approx(
        theirs.average_precision_score(labels, values), abs=1e-9
    )
    false, true, _ = theirs.roc_curve(labels, values, drop_intermediate=False)
    found = scores.roc(labels, values)
    np.testing.assert_allclose(found, (false, true), atol=1e-12)
    assert np.trapezoid(found[1], found[0]) == pytest.approx(scores.auroc(labels, values))


def test_brier_and_reliability_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    labels, given_ = draw.integers(0, 2, 500).astype(float), draw.random(500)
    assert scores.brier(labels, given_) == pytest.approx(theirs.brier_score_loss(labels, given_))
    found = scores.reliability(labels, given_, 5)
    assert [count for *_, count in found] == np.histogram(given_, 5, (0, 1))[0].tolist()
    from sklearn.calibration import calibration_curve

    part, mean = calibration_curve(labels, given_, n_bins=5)
    np.testing.assert_allclose([(one[0], one[1]) for one in found], np.stack([mean, part], 1))


def test_a_finding_without_positives_or_negatives_is_left_out_of_the_mean() -> None:
    labels = np.array([[1.0, 0, 1], [0, 0, 1], [1, 0, 1]])
    logits = np.array([[2.0, 0, 0], [-1, 0, 0], [-2, 1, 0]])
    found = scores.score(labels, logits)
    assert found.auroc == (0.5, None, None)
    assert (found.mean_auroc, found.defined) == (0.5, 1)
    assert found.precision[1] is None
    assert found.accuracy == pytest.approx(4 / 9)
    assert scores.score(labels[:, 1:], logits[:, 1:]).mean_auroc is None


def test_an_interval_holds_the_area_and_narrows_with_more_images() -> None:
    draw = np.random.default_rng(1)

    def width(count: int) -> float:
        labels = draw.integers(0, 2, (count, 1)).astype(float)
        values = labels + draw.normal(0, 1.5, (count, 1))
        found = scores.intervals(labels, values, seed=0, draws=300)
        low, high = found.mean or (0, 0)
        assert found.findings == (found.mean,)
        assert low < (scores.score(labels, values).mean_auroc or 0) < high
        return high - low

    assert width(2000) < width(80) / 3


def test_intervals_are_percentiles_of_draws_with_repetition() -> None:
    """The intervals equal percentiles of the AUROCs of scikit-learn for the same samples.

    Only some bootstrap samples contain an image with the third finding.
    """
    draw, images = np.random.default_rng(2), 90
    labels = (draw.random((images, 3)) < [0.5, 0.1, 0]).astype(float)
    labels[7, 2] = 1
    values = np.round(labels + draw.normal(0, 1, labels.shape))  # many are equal
    drawn = np.random.default_rng(5)
    each: list[list[float]] = [[], [], []]
    means = []
    for _ in range(60):
        chosen = drawn.integers(0, images, images)
        areas = [
            theirs.roc_auc_score(labels[chosen, at], values[chosen, at])
            if 0 < labels[chosen, at].sum() < images else None for at in range(3)
        ]
        for found, area in zip(each, areas, strict=True):
            found.extend([] if area is None else [area])
        means.append(np.mean([area for area in areas if area is not None]))
    assert 0 < len(each[2]) < 60
    found = scores.intervals(labels, values, seed=5, draws=60)
    for ours, areas in zip((*found.findings, found.mean), (*each, means), strict=True):
        assert ours == pytest.approx(np.quantile(areas, [0.025, 0.975]), abs=1e-12)


def test_an_interval_of_nothing_is_none() -> None:
    found = scores.intervals(np.ones((5, 2)), np.ones((5, 2)), seed=0, draws=20)
    assert found == scores.Intervals((None, None), None)
    assert scores.intervals(np.eye(2), np.eye(2), seed=0, draws=0) == found
