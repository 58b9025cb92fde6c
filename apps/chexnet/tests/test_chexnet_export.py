"""Tests of the export: the exported network has the outputs of the original, or no file is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from chexnet import __main__ as app
from chexnet import export, network, restore
from chexnet.findings import NOTICE
from trainkit.testing.refusals import assert_reported


@pytest.fixture(params=["small"])
def model(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> restore.Restored:
    """A network with random weights; the app's function that opens a checkpoint returns it."""
    tf.keras.utils.set_random_seed(0)
    built = network.build(request.param, 32, 2, "fp32")
    found = restore.Restored(built, ("left", "right"), 32, 1, 7)
    monkeypatch.setattr(restore, "open_network", lambda out, file: found)
    return found


def call(*words: str | Path) -> int:
    return app.main(["export", "--out", "run", *map(str, words)])


def by_onnx(path: Path, images: NDArray[np.float32]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(path.read_bytes(), None, ["CPUExecutionProvider"])
    return np.asarray(session.run(["logits"], {"images": images})[0])


def by_saved_model(path: Path, images: NDArray[np.float32]) -> NDArray[np.float32]:
    loaded = tf.saved_model.load(path).signatures["serving_default"]
    return np.asarray(loaded(images=tf.constant(images))["logits"])


FORMS = {"onnx": by_onnx, "savedmodel": by_saved_model}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["small", "mobilenetv2"], indirect=True)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_answers_as_the_network_and_is_never_overwritten(
    form: str, model: restore.Restored, findings: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    to = tmp_path / "network"
    assert call("--to", to, "--format", form, "--data", findings) == 0
    said = capsys.readouterr().out
    assert "random images: 9 images" in said
    assert f"{findings}: 12 images" in said
    assert NOTICE in said
    images = np.random.default_rng(1).integers(0, 256, (3, 32, 32, 1)).astype(np.float32)
    expected = model.network.logits(tf.constant(images), training=False)
    np.testing.assert_allclose(FORMS[form](to, images), expected, atol=1e-5)
    assert call("--to", to, "--format", form) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["network"]


@pytest.mark.slow
def test_it_says_what_it_is(model: restore.Restored, tmp_path: Path) -> None:
    import onnx

    assert call("--to", tmp_path / "a.onnx") == 0
    assert call("--to", tmp_path / "b", "--format", "savedmodel") == 0
    about = json.loads((tmp_path / "b/about.json").read_text())
    props = onnx.load(tmp_path / "a.onnx").metadata_props
    assert {one.key: json.loads(one.value) for one in props} == about
    assert about["findings"] == ["left", "right"]
    assert about["training_step"] == 7
    assert about["preprocessing"]["mode"] == "L"


@pytest.mark.parametrize("form", FORMS)
def test_what_answers_otherwise_is_not_kept(
    form: str, model: restore.Restored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    assert call("--to", tmp_path / "network", "--format", form) == 3
    assert_reported(capsys.readouterr().err, "export-differs", "9 images")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_package_that_is_missing_is_named(
    model: restore.Restored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(export.NEEDED, "onnx", ("tf2onnx", "no_such_package"))
    assert call("--to", tmp_path / "network") == 2
    said = capsys.readouterr().err
    assert_reported(said, "library-missing", " no_such_package,", "--format savedmodel")
