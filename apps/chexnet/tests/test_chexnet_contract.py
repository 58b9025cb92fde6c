"""Tests of the app contract, with a run that trains only the head in its first epoch."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from written_findings import image, pack

from trainkit.testing import App, Contract

TRAINING = """
    --model small --size 32 --channels 1 --epochs 3 --frozen-epochs 1 --batch-size-per-rank 5
    --patience 1 --stop-after 9 --log-every 4 --checkpoint-every 4 --threads 1 --decoders 1
    --precision fp32 --device cpu
"""
"""Options of a training on 27 images: an epoch has 6 steps, and its last batch has two images."""
EQUAL = "--eval-every 0 --log-every 1 --optimizer sgd --base-lr 0.01"


APP = App(
    folder=Path(__file__).parents[1], training=TRAINING, steps=18, diverging="--base-lr 1e38",
    alone=f"{EQUAL} --batch-size-per-rank 6 --accumulation 2",
    shared=f"{EQUAL} --batch-size-per-rank 3", of_each_rank=("body",),
)


class TestContract(Contract):
    app = dataclasses.replace(APP, training=f"{TRAINING} --test")

    @pytest.fixture(scope="class")
    @classmethod
    def data(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A data set with a test split, whose findings have published AUROCs."""
        splits = (("train", range(27)), ("val", range(100, 112)), ("test", range(200, 212)))
        return pack(tmp_path_factory.mktemp("tested") / "squares", {
            split: [image(seed) for seed in seeds] for split, seeds in splits
        }, classes=("Mass", "Edema"))
