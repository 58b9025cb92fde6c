"""Tests of what the commands report on a checkpoint: scores, maps and probabilities.

scikit-learn computes the expected scores; formulas in this file give the other values.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import second_pictures as pictures
import second_training as second
import tensorflow as tf
from packed_images import png
from PIL import Image
from sklearn import metrics as theirs
from sklearn.calibration import calibration_curve
from written_findings import pack

from chexnet import evaluate, export, findings, network, predict, restore, scores
from chexnet.network import Network
from chexnet.restore import Restored
from chexnet.settings import EvaluateSettings
from trainkit import plots
from trainkit.exits import DataError
from trainkit.strategy import Strategy
from trainkit.testing.refusals import refused

NAMES = ("Mass", "left", "Edema")
COUNTS = {"train": 3, "val": 7, "test": 5}


@pytest.fixture(scope="module")
def model() -> Restored:
    """A network with random weights and random statistics of batch normalization."""
    tf.keras.utils.set_random_seed(1)
    built, draw = network.build("small", 32, 3, "fp32"), np.random.default_rng(2)
    for part in (built.body, built.head):
        for one in part.variables:
            low, high = (0.5, 1.5) if len(one.shape) == 1 else (-0.4, 0.4)
            one.assign(draw.uniform(low, high, one.shape).astype(np.float32))
    return Restored(built, NAMES, 32, 1, 7)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[np.ndarray]]]:
    draw = np.random.default_rng(3)
    made = {split: [draw.integers(0, 256, (44, 36)).astype(np.uint8) for _ in range(count)]
            for split, count in COUNTS.items()}
    folder = pack(tmp_path_factory.mktemp("noise") / "three", {
        split: [(((0,), (1, 2), (2,))[at % 3], png(one)) for at, one in enumerate(images)]
        for split, images in made.items()
    }, classes=NAMES)
    return folder, {split: [one[..., None] for one in images] for split, images in made.items()}


def sigmoid(values: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(values, float)))


@pytest.mark.parametrize(("words", "split"), [
    ({"ten_crop": True}, "test"), ({"split": "val"}, "val"),
])
def test_the_command_says_what_scikit_learn_says_of_logits_by_hand(
    words: dict[str, Any], split: str, model: Restored, monkeypatch: pytest.MonkeyPatch,
    noise: tuple[Path, dict[str, list[np.ndarray]]], capsys: pytest.CaptureFixture[str],
) -> None:
    folder, made = noise
    monkeypatch.setattr(restore, "open_network", lambda out, file: model)
    monkeypatch.setattr(evaluate, "start", lambda name, device: SimpleNamespace(device="CPU:0"))
    evaluate.main(EvaluateSettings(data=folder, json=True, draws=25, batch_size=3, seed=4, **words))
    said = json.loads(capsys.readouterr().out)
    boxes = pictures.ten_parts() if "ten_crop" in words else [(0, 0, 1, 1)]
    values = second.weights_of(model.network)
    logits = np.stack([
        second.logits(values, np.stack([pictures.cut_out(one, box, 32) for box in boxes])).mean(0)
        for one in made[split]
    ])
    labels = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 1]])[np.arange(COUNTS[split]) % 3]
    assert (said["split"], said["images"], said["step"]) == (split, COUNTS[split], 7)
    areas = theirs.roc_auc_score(labels, logits, average=None)
    assert said["auroc"] == pytest.approx(areas.mean())
    assert said["accuracy"] == pytest.approx(((logits > 0) == labels).mean())
    draw, means = np.random.default_rng(4), []
    for _ in range(25):
        own = draw.integers(0, len(labels), len(labels))
        each = [theirs.roc_auc_score(labels[own, at], logits[own, at]) for at in range(3)
                if 0 < labels[own, at].sum() < len(own)]
        means += [np.mean(each)] if each else []
    assert said["interval"] == pytest.approx(np.quantile(means, [0.025, 0.975]))
    for at, name in enumerate(NAMES):
        found = said["findings"][name]
        assert found["positive"] == labels[:, at].sum()
        assert found["auroc"] == pytest.approx(areas[at])
        assert found["average_precision"] == pytest.approx(
            theirs.average_precision_score(labels[:, at], logits[:, at]))
        assert found["brier"] == pytest.approx(
            ((sigmoid(logits[:, at]) - labels[:, at]) ** 2).mean(), rel=2e-3)


def answered(count: int = 300) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Return random labels and logits, (count, 3), and the names of the three findings.

    The second finding has the largest logits.
    """
    draw = np.random.default_rng(5)
    labels = (draw.random((count, 3)) < [0.3, 0.5, 0.1]).astype(float)
    return labels, np.array([1, 4, 0.5]) * (labels - 0.4) + draw.normal(0, 1, labels.shape), NAMES


def test_documents_tables_and_pictures_have_probabilities_scores_and_references(
    model: Restored,
) -> None:
    labels, logits, names = answered()
    found = scores.score(labels, logits)
    between = scores.intervals(labels, logits, seed=0, draws=20)
    said = evaluate.json_document(labels, logits, model, "val", found, between)
    lines = [line.split() for line in evaluate.table(labels, logits, names, found, between)]
    with plots.drawing():
        curves, calibration = evaluate.draw(labels, logits, names, found).axes
    for at, name in enumerate(names):
        truth, likely = labels[:, at], sigmoid(logits[:, at])
        area, brier = theirs.roc_auc_score(truth, likely), theirs.brier_score_loss(truth, likely)
        precision = theirs.average_precision_score(truth, likely)
        own = said["findings"][name]
        assert (own["auroc"], own["brier"], own["average_precision"]) == pytest.approx(
            (area, brier, precision))
        low, high = between.findings[at] or (0, 0)
        row = next(line for line in lines if line[0] == name)
        assert row[:8] == [name, f"{truth.sum():.0f}", f"{area:.4f}", f"{low:.4f}", "to",
                           f"{high:.4f}", f"{precision:.4f}", f"{brier:.4f}"]
        part, mean = calibration_curve(truth, likely, n_bins=10)
        np.testing.assert_allclose([one[:2] for one in own["reliability"]],
                                   np.stack([mean, part], 1))
        counts = np.histogram(likely, 10, (0, 1))[0]
        assert [one[2] for one in own["reliability"]] == [one for one in counts if one]
        shown = [one for one, many in zip(zip(mean, part, strict=True), counts[counts > 0],
                                          strict=True) if many >= 10]
        np.testing.assert_allclose(calibration.lines[at].get_xydata(), shown)
        false, true, _ = theirs.roc_curve(truth, likely, drop_intermediate=False)
        np.testing.assert_allclose(curves.lines[at].get_xydata(), np.stack([false, true], 1))
    aurocs = [said["findings"][name]["auroc"] for name in names]
    assert said["auroc"] == pytest.approx(np.mean(aurocs))
    assert said["accuracy"] == pytest.approx(((sigmoid(logits) > 0.5) == labels).mean())
    assert said["average_precision"] == pytest.approx(
        theirs.average_precision_score(labels, logits))
    assert said["findings"]["Mass"]["reference"] == {
        "Wang 2017": 0.706, "CheXNet": 0.8676, "open re-implementation": 0.8597}
    assert said["better_than"]["CheXNet"] == (sum(np.array(aurocs)[[0, 2]] > [0.8676, 0.8878]), 2)
    mean = next(line for line in lines if line[0] == "mean")
    of_both = [(0.706 + 0.835) / 2, (0.8676 + 0.8878) / 2, (0.8597 + 0.8932) / 2]
    assert [float(one) for one in mean[-3:]] == pytest.approx(of_both, abs=6e-5)
    assert mean[1] == f"{np.mean(aurocs):.4f}"


@pytest.mark.parametrize("values", [[0.0, 0.5, -1, 3, -8, 1000, -1000]])
def test_a_probability_is_the_sigmoid_of_the_logit(values: list[float]) -> None:
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(evaluate.probabilities(np.array(values)), sigmoid(values),
                                   atol=1e-12)


def test_a_bin_has_its_lower_edge_and_the_last_one_both() -> None:
    given = np.array([0.0, 0.1, 0.0999, 0.95, 1.0])
    found = scores.reliability(np.array([0, 1, 0, 1, 1.0]), given)
    assert [one[2] for one in found] == [2, 1, 2]
    np.testing.assert_allclose(found[2], (0.975, 1.0, 2))


def test_intervals_are_of_1000_draws_and_95_percent_unless_told() -> None:
    labels, logits, _ = answered(60)
    found = scores.intervals(labels[:, :1], logits[:, :1], seed=9)
    draw, areas = np.random.default_rng(9), []
    for _ in range(1000):
        own = draw.integers(0, 60, 60)
        with_it, without = logits[own, 0][labels[own, 0] > 0], logits[own, 0][labels[own, 0] == 0]
        above = (with_it[:, None] > without).mean() + (with_it[:, None] == without).mean() / 2
        areas.append(above)
    assert found.mean == pytest.approx(np.quantile(areas, [0.025, 0.975]))
    assert EvaluateSettings().draws == 1000


PUBLISHED = """Atelectasis .716 .8094 .8294, Cardiomegaly .807 .9248 .9165,
    Effusion .784 .8638 .8870, Infiltration .609 .7345 .7143, Mass .706 .8676 .8597,
    Nodule .671 .7802 .7873, Pneumonia .633 .7680 .7745, Pneumothorax .806 .8887 .8726,
    Consolidation .708 .7901 .8142, Edema .835 .8878 .8932, Emphysema .815 .9371 .9254,
    Fibrosis .769 .8047 .8304, Pleural_Thickening .708 .8062 .7831, Hernia .767 .9164 .9104"""
"""Published AUROCs of Wang et al., of CheXNet, and of the repository arnoweng/CheXNet.

The first two columns are from table 2 of arXiv:1711.05225.
"""


def test_references_are_those_of_the_published_tables() -> None:
    rows = [row.split() for row in PUBLISHED.split(",")]
    assert list(findings.REFERENCE.items()) == [
        (name, tuple(map(float, values))) for name, *values in rows
    ]
    assert findings.SOURCES == ("Wang 2017", "CheXNet", "open re-implementation")


def test_others_are_excelled_in_findings_of_the_same_name_only() -> None:
    found = findings.better(("Hernia", "Mass", "left", "Edema"), (0.80, 0.86, 0.99, None))
    assert found == {"Wang 2017": (2, 2), "CheXNet": (0, 2), "open re-implementation": (1, 2)}
    assert findings.better(("left",), (0.9,)) == {}


def test_a_map_is_the_features_by_the_mean_slope_of_its_own_finding_where_they_speak_for_it(
) -> None:
    """The logits, and the Grad-CAM map of each finding, equal their formulas in NumPy.

    The head has two dense layers, so that the gradients of a logit differ between the positions
    of the features. Therefore the test also checks that a map uses the mean of the gradients.
    """
    given = keras.Input((2, 2, 3))
    hidden = keras.layers.Dense(5, "relu", name="fc1")(keras.layers.Flatten()(given))
    head = keras.Model(given, keras.layers.Dense(2, name="findings")(hidden))
    images = keras.Input((4, 4, 3))
    body = keras.Model(images, keras.layers.AveragePooling2D(2)(images))
    draw = np.random.default_rng(6)
    for one in head.variables:
        one.assign(draw.normal(0, 1, one.shape).astype(np.float32))
    found = Restored(Network("small", body, head), ("a", "b"), 4, 3, 1)
    pixels = draw.integers(0, 256, (4, 4, 3)).astype(np.uint8)
    logits, maps = found.maps(tf.constant(pixels))
    features = pixels.reshape(2, 2, 2, 2, 3).astype(float).mean((1, 3))
    w1, b1, w2, b2 = (one.numpy().astype(float) for one in head.variables)
    first = features.reshape(-1) @ w1 + b1
    np.testing.assert_allclose(logits, np.maximum(first, 0) @ w2 + b2, rtol=1e-4)
    for at in range(2):
        slope = (w1 @ (w2[:, at] * (first > 0))).reshape(2, 2, 3).mean((0, 1))
        np.testing.assert_allclose(maps[at], np.maximum(features @ slope, 0), rtol=1e-3, atol=1e-3)
    assert (maps.numpy() == 0).any()
    assert (maps.numpy() > 0).any()


def test_a_picture_is_seen_with_the_probabilities_and_maps_of_each_finding(
    model: Restored, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (40, 50)).astype(np.uint8)
    (tmp_path / "one.png").write_bytes(png(pixels))
    seen = predict.predict_image(model, tmp_path / "one.png")
    values, shown = second.weights_of(model.network), pictures.cut_out(
        pixels[..., None], (0, 0, 1, 1), 32)
    features, _ = second.features(values, shown[None], training=False)
    logits = second.logits(values, shown[None])[0]
    np.testing.assert_allclose(seen.probabilities, sigmoid(logits), rtol=2e-3)
    raw = np.maximum(np.einsum("hwc,cf->fhw", features[0], values["kernel.head"]), 0)
    assert (raw.max((1, 2)) > 0).all()
    cells = raw / raw.max((1, 2), keepdims=True)
    np.testing.assert_allclose(seen.cells, cells, atol=0.01)
    for at in range(3):
        grown = np.maximum(np.asarray(Image.fromarray(cells[at].astype(np.float32)).resize(
            (50, 40), Image.Resampling.BICUBIC)), 0)
        np.testing.assert_allclose(seen.maps[at], grown / grown.max(), atol=0.02)
    assert seen.most_likely(2) == np.argsort(-logits)[:2].tolist()
    said = predict.json_document(seen, NAMES)
    assert (said["width"], said["height"]) == (50, 40)
    for at, name in enumerate(NAMES):
        about = said["findings"][name]
        assert about["probability"] == pytest.approx(sigmoid(logits)[at], rel=2e-3)
        np.testing.assert_allclose(about["map"], cells[at], atol=0.011)
        rows, columns = np.nonzero(seen.maps[at] > 0.5)
        assert about["region"] == [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
    with plots.drawing():
        axes = predict.draw([seen], NAMES, [2, 0]).axes
    assert [one.get_title().split()[0] for one in axes] == ["one.png", "Edema", "Mass"]
    for one, at in zip(axes[1:], (2, 0), strict=True):
        np.testing.assert_array_equal(one.images[1].get_array(), seen.maps[at])
        assert f"{sigmoid(logits)[at]:.0%}" in one.get_title()


def test_a_map_that_speaks_for_nothing_stays_empty() -> None:
    found = predict._relative(np.array([[[0.0, 0]], [[2, 4]], [[1, 0.25]]], np.float32))
    np.testing.assert_array_equal(found, [[[0, 0]], [[0.5, 1]], [[1, 0.25]]])


def test_an_exported_network_is_the_one_that_is_judged(
    model: Restored, noise: tuple[Path, dict[str, list[np.ndarray]]]
) -> None:
    folder, made = noise
    images = list(export.real_images(folder, model, Strategy()))
    shown = np.stack([pictures.cut_out(one, (0, 0, 1, 1), 32) for one in made["val"]])
    pictures.same(np.concatenate(images), shown)
    found = export.graph(model)(tf.constant(shown, tf.float32))["logits"]
    expected = second.logits(second.weights_of(model.network), shown)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
    about = export.about(model)
    assert about["findings"] == NAMES
    assert about["preprocessing"]["resize"] == [32, 32]
    assert about["preprocessing"]["mode"] == "L"


@pytest.mark.parametrize(("wrong", "largest", "accepted"), [
    (0.9e-4, 0.5, True), (1.5e-4, 0.5, False), (-1.5e-4, 0.5, False), (4e-4, 5.0, True),
    (6e-4, 5.0, False), (np.nan, 1.0, False), (np.inf, 1.0, False),
])
def test_an_export_may_differ_by_a_ten_thousandth_of_the_largest_logit(
    wrong: float, largest: float, accepted: bool
) -> None:
    ours = np.array([[0.1, -largest], [0.2, 0.3]], np.float64)

    def logits(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"logits": tf.constant(ours)}

    theirs_ = ours + np.array([[0, 0], [wrong, 0]])
    batches = iter([np.zeros((2, 1, 1, 1), np.float32)])
    if accepted:
        assert "2 images" in export.compare(logits, lambda images: theirs_, batches)
    else:
        with refused(DataError, "export-differs", "2 images"):
            export.compare(logits, lambda images: theirs_, batches)
