"""Tests of the number of bytes that the replicas send to each other in a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from squares import squares
from test_keras_resnet_contract import APP

from keras_resnet import traffic
from trainkit.testing import Program, reading

WEIGHTS = 4 * (3 * 9 * 8 + 8 * 9 * 16 + 16 * 9 * 32 + 2 * (8 + 16 + 32) + 32 * 2 + 2)
"""Bytes of the network `Small` with two classes: three convolutions, scale and offset of each batch
normalization, and the last layer."""


@pytest.mark.parametrize(("replicas", "sent"), [(1, 0), (2, 2000), (4, 6000)])
def test_a_ring_sends_the_gradients_twice_but_for_one_part(replicas: int, sent: int) -> None:
    assert traffic.all_reduce(1000, replicas) == sent


def test_an_asynchronous_step_moves_weights_gradients_and_images_once() -> None:
    assert traffic.parameter_server(1000, 1000, 50, 1, synchronous=False) == 2050


def test_a_synchronous_step_moves_them_for_each_worker_and_the_sum_twice() -> None:
    assert traffic.parameter_server(1000, 1000, 50, 3, synchronous=True) == 3 * 2000 + 2050
    assert traffic.parameter_server(1000, 1000, 50, 1, synchronous=True) == 2000 + 2050


@pytest.mark.slow
@pytest.mark.parametrize(("words", "sent"), [
    ([], 0), (["--strategy", "mirrored", "--replicas", "2"], 2 * WEIGHTS),
])
def test_a_run_logs_the_bytes_of_a_step(words: list[str], sent: int, tmp_path: Path) -> None:
    program, out = Program(APP, squares(tmp_path / "squares")), tmp_path / "run"
    program.train(out, "--max-steps", "1", "--batch-size", "6", *words)
    assert [x["value"] for x in reading.lines(out) if x["key"] == traffic.SENT] == [sent]
