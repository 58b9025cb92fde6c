"""Tests of the formulas: loss, learning rate, loss scale, and decisions after a validation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from chexnet import method
from chexnet.method import LossScale, Plateau
from chexnet.settings import PretrainSettings, TrainSettings
from chexnet.state import identity
from trainkit.testing.identities import may_change

FREE = (
    "data out initial resume checkpoint_every keep log_every max_steps device decoders"
    " inter_threads profile test watchdog"
)


def test_the_loss_is_the_weighted_cross_entropy_of_the_paper() -> None:
    labels = np.array([[1, 0], [0, 0], [0, 0], [0, 1]], np.float32)
    logits = np.array([[0.5, -2], [1, 0.25], [-3, 0], [2, -1]], np.float32)
    weighting = method.finding_weights(labels)
    np.testing.assert_allclose(weighting, [[0.75, 0.75], [0.25, 0.25]])
    p = 1 / (1 + np.exp(-logits.astype(float)))
    expected = -(0.75 * labels * np.log(p) + 0.25 * (1 - labels) * np.log(1 - p)).mean(1)
    np.testing.assert_allclose(method.losses(logits, labels, weighting), expected, rtol=1e-6)


def test_having_a_finding_and_not_having_it_weigh_the_same() -> None:
    labels = (np.arange(40)[:, None] < [4, 30]).astype(np.float32)
    present, absent = method.finding_weights(labels)
    np.testing.assert_allclose(present * labels.sum(0), absent * (1 - labels).sum(0), rtol=1e-6)


def test_a_finding_that_nobody_or_everybody_has_is_not_weighted_away() -> None:
    labels = np.array([[0, 1], [0, 1]], np.float32)
    assert method.finding_weights(labels).tolist() == [[1, 1], [1, 1]]
    assert method.finding_weights(labels[:0]).shape == (2, 2)


def test_the_rate_and_the_images_of_its_warm_up_grow_with_the_batch() -> None:
    settings = TrainSettings(base_lr=0.1, warmup_images=400, base_batch=100)
    expected = [0.025, 0.05, 0.075, 0.1, 0.1, 0.1]
    for times in (1, 2, 64):
        rates = [method.learning_rate(settings, step, 100 * times, 1.0) for step in range(6)]
        assert rates == pytest.approx([times * one for one in expected])
    assert method.learning_rate(settings, 9, 100, 0.1) == pytest.approx(0.01)


def test_without_a_base_batch_the_rate_rises_over_so_many_images() -> None:
    settings = TrainSettings(base_lr=0.1, warmup_images=400)
    for batch, steps in ((100, 4), (200, 2), (300, 2)):
        rates = [method.learning_rate(settings, step, batch, 1.0) for step in range(steps + 1)]
        assert rates == pytest.approx([0.1 * (at + 1) / steps for at in range(steps)] + [0.1])
    assert method.learning_rate(TrainSettings(base_lr=0.1), 0, 4096, 1.0) == 0.1


def test_the_pre_training_warms_up_over_five_epochs_of_its_published_batch() -> None:
    settings = PretrainSettings()
    rates = [method.learning_rate(settings, step, 8192, 1.0) for step in range(900)]
    assert rates.index(max(rates)) + 1 == round(5 * 1_281_167 / 8192)
    assert max(rates) == pytest.approx(3.2)


def test_the_rate_of_the_pre_training_falls_after_30_60_and_80_of_90_epochs() -> None:
    settings = PretrainSettings(warmup_images=0)
    rates = [method.learning_rate(settings, 157 * epoch, 8192, 1.0, epoch) for epoch in range(90)]
    expected = [3.2] * 30 + [0.32] * 30 + [0.032] * 20 + [0.0032] * 10
    assert rates == pytest.approx(expected)
    constant = TrainSettings(base_lr=0.1)
    assert {method.learning_rate(constant, 9, 16, 1.0, epoch) for epoch in range(90)} == {0.1}


def test_the_rate_falls_and_the_training_ends_where_nothing_gets_better() -> None:
    plateau = Plateau(TrainSettings(patience=2, stop_after=5, drop=0.5))
    seen = []
    for auroc in (0.6, 0.7, 0.65, None, 0.7, 0.69, 0.71, 0.5, 0.5, 0.5, 0.5, 0.5):
        plateau.update(auroc)
        seen.append((plateau.factor, plateau.stopped))
    factors = [1, 1, 1, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625]
    assert [factor for factor, _ in seen] == factors
    assert [stopped for _, stopped in seen] == [False] * 11 + [True]


def test_a_better_auroc_begins_the_patience_anew() -> None:
    plateau, factors = Plateau(TrainSettings(patience=2)), []
    for auroc in (0.5, 0.4, 0.6, 0.5, 0.5, 0.5):
        plateau.update(auroc)
        factors.append(plateau.factor)
    assert factors == pytest.approx([1, 1, 1, 1, 0.1, 0.1])


def test_what_the_validation_has_seen_comes_back() -> None:
    settings = TrainSettings(patience=2)
    whole, begun = Plateau(settings), Plateau(settings)
    for auroc in (0.7, 0.6):
        whole.update(auroc)
        begun.update(auroc)
    again = Plateau(settings)
    again.load_state_dict(begun.state_dict())
    for auroc in (0.65, 0.71, 0.5, 0.5):
        whole.update(auroc)
        again.update(auroc)
    assert again.state_dict() == whole.state_dict()
    assert again.factor == pytest.approx(0.01)


def test_without_patience_nothing_falls_and_nothing_ends() -> None:
    plateau = Plateau(TrainSettings())
    for _ in range(50):
        plateau.update(0.5)
    assert (plateau.factor, plateau.stopped) == (1, False)


def test_the_scale_halves_where_a_gradient_is_not_finite() -> None:
    scale = LossScale("fp16")
    begun = float(scale.scale)
    found, finite = scale.unscaled([tf.constant([begun, 2 * begun]), tf.constant([0.0])])
    assert bool(finite)
    assert found[0].numpy().tolist() == [1, 2]
    _, finite = scale.unscaled([tf.constant([1.0, np.inf])])
    assert not bool(finite)
    assert float(scale.scale) == begun / 2


def test_the_scale_doubles_after_a_while_and_other_precisions_have_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LossScale, "EVERY", 3)
    scale = LossScale("fp16")
    begun = float(scale.scale)
    for _ in range(3):
        scale.unscaled([tf.constant([1.0])])
    assert float(scale.scale) == 2 * begun
    plain = LossScale("bf16")
    assert float(plain.scale) == 1
    found, finite = plain.unscaled([tf.constant([np.inf])])
    assert bool(finite)  # the session sees that the loss is not
    assert np.isinf(found[0].numpy()).all()


def test_every_setting_that_shapes_weights_or_curve_is_the_same_when_a_training_goes_on() -> None:
    def of(settings: TrainSettings, data: str = "data") -> dict[str, Any]:
        return identity(settings, SimpleNamespace(name=data), SimpleNamespace(size=1))

    assert may_change(TrainSettings(), of) == set(FREE.split())
    assert of(TrainSettings(), "other") != of(TrainSettings())
