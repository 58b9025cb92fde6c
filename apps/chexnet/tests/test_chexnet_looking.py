"""Tests of the commands that read a checkpoint: scores, findings of images, regions, curves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from packed_images import png
from PIL import Image
from written_findings import image, pack

from chexnet import __main__ as app
from chexnet import evaluate, inputs, network, predict, restore, scores
from chexnet.findings import NOTICE, REFERENCE
from chexnet.settings import EvaluateSettings
from trainkit import metrics, plots
from trainkit.testing import reading
from trainkit.testing.program import VARIABLES
from trainkit.testing.refusals import assert_reported

TRAINING = """train --model small --size 32 --channels 1 --epochs 12 --batch-size-per-rank 9
    --base-lr 0.01 --threads 1 --device cpu --eval-every 12 --log-every 12"""


def train(*words: str, code: int = 0) -> str:
    """Run the app in its own process, which sets TensorFlow's threads, and return its stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "chexnet", *words], env=os.environ | VARIABLES, check=False,
        capture_output=True, text=True,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def run(findings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose network roughly knows on which sides an image has a square."""
    out = tmp_path_factory.mktemp("run") / "run"
    train(*TRAINING.split(), "--data", str(findings), "--out", str(out))
    return out


def call(capsys: pytest.CaptureFixture[str], *words: str | Path, code: int = 0) -> str:
    capsys.readouterr()
    assert app.main([*map(str, words), "--device", "cpu"]) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def width(picture: Path) -> int:
    with Image.open(picture) as opened:
        return opened.width


@pytest.mark.slow
def test_the_command_has_the_scores_of_the_training(
    run: Path, findings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = json.loads(call(capsys, "evaluate", "--data", findings, "--out", run, "--json"))
    trained = json.loads((run / "result.json").read_text())["evaluation"]
    assert found["auroc"] == pytest.approx(trained["auroc"], abs=1e-6)
    assert found["accuracy"] == pytest.approx(trained["accuracy"])
    assert found["average_precision"] == pytest.approx(trained["average_precision"], abs=1e-6)
    left = found["findings"]["left"]
    assert left["interval"][0] <= left["auroc"] <= left["interval"][1]
    assert 0 <= left["brier"] <= 1
    assert left["reference"] is None


@pytest.mark.slow
def test_scores_are_a_table_and_a_picture(
    run: Path, findings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "roc.svg"
    said = call(capsys, "evaluate", "--data", findings, "--out", run, "--ten-crop", "--draws", "20",
                "--plot", picture)
    assert "val: 12 images, step 36, ten crops of each" in said
    assert NOTICE in said
    assert "left" in picture.read_text()
    again = call(capsys, "evaluate", "--data", findings, "--out", run, "--plot", picture, code=2)
    assert "roc.svg" in again


def fourteen() -> tuple[np.ndarray, np.ndarray]:
    """Return labels and logits of 14 findings: ten are predicted well, and three badly.

    No image has the last finding.
    """
    draw = np.random.default_rng(0)
    labels = (draw.random((4000, 14)) < 0.3).astype(float)
    labels[:, 13] = 0
    strength = np.array([5.0] * 10 + [0.1] * 4)
    return labels, strength * (labels - 0.5) + draw.normal(0, 1, labels.shape)


def test_a_picture_has_a_curve_of_each_finding_that_has_one() -> None:
    labels, logits = fourteen()
    with plots.drawing():
        figure = evaluate.draw(labels, logits, tuple(REFERENCE), scores.score(labels, logits))
    curves, calibration = figure.axes
    assert len(curves.lines) == 13 + 1  # and the diagonal
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert [one.split()[0] for one in said] == list(REFERENCE)[:13]
    few = [len(one.get_offsets()) for one in calibration.collections]
    assert len(few) == 14
    assert all(1 <= bins <= 10 for bins in few)


def test_the_table_puts_the_14_findings_beside_those_of_others() -> None:
    """The table has the AUROCs of the run beside published AUROCs, and counts the better ones.

    Of 14 findings, ten are better than in CheXNet, three are worse, and one is undefined.
    """
    names, (labels, logits) = tuple(REFERENCE), fourteen()
    found = scores.score(labels, logits)
    between = scores.intervals(labels, logits, seed=0, draws=20)
    said = "\n".join(evaluate.table(labels, logits, names, found, between))
    rows = {line.split()[0]: line.split() for line in said.splitlines()}
    for name, at in (("Atelectasis", 0), ("Fibrosis", 11)):
        assert rows[name][1:3] == [str(int(labels[:, at].sum())), f"{found.auroc[at]:.4f}"]
        assert rows[name][-3:] == [f"{value:.4f}" for value in REFERENCE[name]]
    assert rows["Hernia"][2] == "undefined"
    low, high = between.mean or (0, 0)
    mean = f"mean over 13 of 14 {found.mean_auroc:.4f} {low:.4f} to {high:.4f}"
    assert " ".join(rows["mean"]).startswith(mean)
    assert rows["mean"][-3:] == ["0.7381", "0.8414", "0.8427"]  # .738, .841, .843 as published
    assert "better than CheXNet in 10 of 13 findings" in said


@pytest.mark.slow
def test_findings_of_an_image_and_where_they_are(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = tmp_path / "one.png"
    one.write_bytes(next(content for found, content in map(image, range(200, 300)) if found))
    maps = tmp_path / "maps.png"
    said = json.loads(call(capsys, "predict", "--out", run, "--data", one, "--to", maps, "--json"))
    assert said["notice"] == NOTICE
    (about,) = said["images"]
    assert (about["width"], about["height"]) == (32, 32)
    assert about["findings"].keys() == {"left", "right"}
    cells = np.array([one["map"] for one in about["findings"].values()])
    assert cells.shape == (2, 4, 4)
    assert cells.min() >= 0
    assert cells.max() == 1
    assert width(maps) > 300
    text = call(capsys, "predict", "--out", run, "--data", one, one, "--findings", "right")
    assert text.count("right") == 2
    assert "left" not in text
    assert NOTICE in text


@pytest.mark.parametrize(("channels", "packed"), [(1, None), (3, None), (3, (50, 40))])
def test_both_commands_say_the_same_of_an_image(
    channels: int, packed: tuple[int, int] | None, tmp_path: Path
) -> None:
    """`evaluate` and `predict` compute the same probabilities for an image.

    The image is grey, coloured, or scaled for packing.
    """
    draw = np.random.default_rng(0)
    levels = draw.integers(0, 256, (9, 7) if channels == 1 else (9, 7, 3))
    pixels = np.kron(levels, np.ones((11, 11, 1)[: levels.ndim])).astype(np.uint8)
    (tmp_path / "one.png").write_bytes(png(pixels))
    small = Image.fromarray(pixels).resize(packed, Image.Resampling.BICUBIC) if packed else pixels
    images = [((0,), png(np.asarray(small)))] * 2
    folder = pack(tmp_path / "images", {"train": images, "val": images}, channels=channels)
    tf.keras.utils.set_random_seed(0)
    built = network.build("small", 32, 2, "fp32")
    model = restore.Restored(built, ("left", "right"), 32, channels, 7, packed)
    settings = EvaluateSettings(data=folder, out=tmp_path)
    _, logits = evaluate.predict_logits(model, inputs.open_images(folder), "val", settings)
    found = predict.predict_image(model, tmp_path / "one.png").probabilities
    np.testing.assert_allclose(found, evaluate.probabilities(logits)[0], atol=1e-6)


@pytest.mark.slow
def test_a_finding_that_is_none_and_an_image_that_is_none_are_named(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x.png").write_bytes(b"nothing")
    words = ("predict", "--out", run, "--data", tmp_path / "x.png")
    assert "x.png cannot be decoded" in call(capsys, *words, code=3)
    assert "trained on left, right" in call(capsys, *words, "--findings", "up", code=2)


def test_a_map_is_where_the_logit_rises() -> None:
    """If the head averages the features, a map is the sum of the features, weighted by the head.

    The sum is divided by the number of positions; negative sums become 0.
    """
    tf.keras.utils.set_random_seed(0)
    built = network.build("small", 32, 2, "fp32")
    model = restore.Restored(built, ("left", "right"), 32, 1, 7)
    kernel, _ = model.network.head.layers[-1].variables
    kernel.assign(np.stack([kernel.numpy()[:, 0], -kernel.numpy()[:, 0]], 1))  # for, and against
    pixels = tf.constant(np.random.default_rng(0).integers(0, 256, (32, 32, 1), np.uint8))
    logits, maps = model.maps(pixels)
    features = model.network.features(pixels[None], training=False)[0].numpy()
    weights, bias = (one.numpy() for one in model.network.head.layers[-1].variables)
    np.testing.assert_allclose(logits, features.mean((0, 1)) @ weights + bias, rtol=1e-4, atol=1e-5)
    expected = np.maximum(features @ weights, 0).transpose(2, 0, 1) / features[..., 0].size
    np.testing.assert_allclose(maps, expected, rtol=1e-3, atol=1e-6)


def test_a_box_holds_what_speaks_strongly() -> None:
    found = np.zeros((8, 10), np.float32)
    assert predict.bounding_box(found) is None
    found[2:4, 5:9] = 0.9
    found[7, 0] = 0.4
    assert predict.bounding_box(found) == [5, 2, 9, 4]


@pytest.mark.slow
def test_curves_are_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["plot", "--out", str(run)]) == 0
    assert width(run / "plot.png") > 500


@pytest.mark.slow
@pytest.mark.long
def test_a_training_begins_with_the_body_of_a_checkpoint(
    run: Path, findings: Path, tmp_path: Path
) -> None:
    newest = max((run / "checkpoints").iterdir())
    words = [*TRAINING.split(), "--data", str(findings), "--out", str(tmp_path / "next")]
    more = ["--initial", str(newest), "--frozen-epochs", "12", "--base-lr", "1e-9"]
    train(*words, *more)
    one, two = (restore.open_network(out, None).network for out in (run, tmp_path / "next"))
    for ours, theirs in zip(one.body.variables, two.body.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    other = ["--model", "mobilenetv2", "--initial", str(newest), "--out", str(tmp_path / "other")]
    said = train(*words, *other, code=3)
    assert_reported(said, "weights-mismatch", newest, "features.0.0 has [(3, 3, 3, 8)]")


@pytest.mark.slow
def test_a_training_goes_on_with_the_rate_of_a_checkpoint(
    run: Path, findings: Path, tmp_path: Path
) -> None:
    newest, out = max((run / "checkpoints").iterdir()), tmp_path / "next"
    words = [*TRAINING.split(), "--data", str(findings), "--out", str(out), "--max-steps", "4",
             "--base-lr", "0.5", "--log-every", "1", "--initial-rate"]
    train(*words, "--initial", str(newest), "--base-batch", "3", "--warmup-images", "6")
    rates = [rate for _, rate in reading.values(out, metrics.LEARNING_RATE)]
    assert rates == pytest.approx([0.015, 0.03, 0.03, 0.03])  # 0.01 then, for 3 images, now of 9
    assert "--initial-rate needs --initial CHECKPOINT.npz" in train(*words, code=2)


@pytest.mark.slow
@pytest.mark.long
def test_images_of_one_class_each_are_learned_and_begun_with(
    findings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = pack(tmp_path / "classes", {
        split: [((0,), content) if found else ((1,), content)
                for found, content in (image(seed) for seed in seeds)]
        for split, seeds in (("train", range(24)), ("val", range(50, 58)))
    }, labels="class")
    words = [*TRAINING.replace("train ", "pretrain ", 1).split(), "--data", str(classes)]
    out = tmp_path / "pretrained"
    more = ["--warmup-images", "0", "--base-lr", "0.02", "--base-batch", "9"]
    train(*words, *more, "--out", str(out))
    found = json.loads((out / "result.json").read_text())["evaluation"]
    assert found.keys() == {"loss", "accuracy"}
    assert found["accuracy"] >= 0.5
    newest = max((out / "checkpoints").iterdir())
    again = [*TRAINING.split(), "--data", str(findings), "--out", str(tmp_path / "run")]
    train(*again, "--initial", str(newest), "--max-steps", "2")
    assert app.main(["evaluate", "--data", str(classes), "--out", str(out)]) == 3
    assert_reported(capsys.readouterr().err, "data-mismatch", classes)


@pytest.mark.parametrize("size", [(2, 3000), (3000, 2)])
def test_a_strip_is_drawn_too(size: tuple[int, int], tmp_path: Path) -> None:
    """The figure of a very narrow or very flat image is drawn.

    With the aspect ratio of the image, it would have more pixels than matplotlib can draw.
    """
    maps = np.zeros((1, size[1], size[0]), np.float32)
    image = Image.new("L", size)
    one = predict.Prediction(tmp_path / "strip.png", image, np.array([0.5]), maps, maps)
    with plots.drawing():
        plots.save(predict.draw([one], ("left",), []), tmp_path / "maps.png")
    assert width(tmp_path / "maps.png") > 0
