"""Tests of batches: each image occurs once per epoch, for any number of ranks and replicas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from squares import squares

from keras_resnet.images import Split, Synthetic, open_split
from trainkit.data.order import Plan
from trainkit.exits import DataError
from trainkit.testing.refusals import refused


def split(samples: int, batch: int, *, training: bool = True) -> Split:
    class Numbered(Synthetic):
        def __init__(self) -> None: ...

        def __len__(self) -> int:
            return samples

    return Split(Numbered(), Plan(samples, batch, 5, training), 32, True, 1)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_the_shares_of_all_replicas_are_the_epoch(
    samples: int, batch: int, ranks: int, replicas: int, training: bool
) -> None:
    data = split(samples, batch, training=training)
    order = data.plan.order(2)
    found: list[Sequence[Any]] = []
    for rank in range(ranks):
        own = range(rank * replicas, (rank + 1) * replicas)
        numbers, weights, flips, sizes = data._order(2, 0, own, ranks * replicas)
        assert len(sizes) == data.plan.steps * replicas
        assert sum(sizes) == len(numbers) == len(weights) == len(flips)
        assert min(sizes) >= 1  # no replica has an empty batch
        ends = np.cumsum(sizes)[:-1]
        found.append(list(zip(np.split(numbers, ends), np.split(weights, ends), strict=True)))
    for step in range(data.plan.steps):
        parts = [part for own in found for part in own[step * replicas : (step + 1) * replicas]]
        numbers = np.concatenate([one[weight > 0] for one, weight in parts])
        assert numbers.tolist() == order[step * batch : (step + 1) * batch].tolist()
        assert sum(weight.sum() for _, weight in parts) == pytest.approx(1)


def test_a_resumed_epoch_has_the_rest_of_the_batches(tmp_path: Path) -> None:
    data = open_split(squares(tmp_path / "squares"), "train", 32, 5, 1)
    whole, rest = (
        [images.numpy() for images, _ in data.batches(0, first)] for first in (0, 2)
    )
    assert len(whole) == 6
    for one, other in zip(whole[2:], rest, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_replica_without_an_image_gets_one_without_a_class(tmp_path: Path) -> None:
    data = open_split(squares(tmp_path / "squares", val=3), None, 32, 2, 1)
    sets = [[labels.numpy().tolist() for _, labels in data.batches(rank=rank, ranks=2)]
            for rank in range(2)]
    assert [len(one) for one in sets] == [2, 2]
    assert sets[1][1] == [-1]


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    folder = squares(tmp_path / "squares")
    data = open_split(folder, "train", 32, 5, 1)
    (shard,) = folder.glob("train-*.tar")
    content = bytearray(shard.read_bytes())
    at = content.index(b"IDAT")
    content[at + 8 : at + 40] = bytes(32)
    shard.write_bytes(content)
    with refused(DataError, "image-undecodable", shard.name), data.explained():
        list(data.batches())
