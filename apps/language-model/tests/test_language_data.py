"""Batches of a text: each token once per epoch, in an order that does not depend on the ranks."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import packed_text
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from language_model import inputs
from language_model.batch import IGNORED
from language_model.data import PROBABILITIES, Sequences, Split, Tokens, synthetic
from language_model.settings import TrainSettings
from language_model.shapes import SHAPES
from trainkit.exits import DataError
from trainkit.testing.refusals import refused


def counted(lengths: list[int]) -> Split:
    """Return a split whose tokens are their own positions, in shards of `lengths` tokens."""
    shards, first = [], 0
    for length in lengths:
        ends = np.append(np.arange(3, length, 3), length)
        shards.append(Tokens(np.arange(first, first + length, dtype=np.uint32), ends))
        first += length
    return Split("train", shards, first, first)


SIZES = {
    "lengths": st.lists(st.integers(1, 40), min_size=1, max_size=4), "length": st.integers(1, 12),
    "batch": st.integers(1, 5), "parts": st.integers(1, 3), "epoch": st.integers(0, 3),
}


@settings(max_examples=60, deadline=None)
@given(**SIZES)
def test_each_token_is_a_target_once_per_epoch(
    lengths: list[int], length: int, batch: int, parts: int, epoch: int
) -> None:
    split = counted(lengths)
    for training in (False, True):
        count = (split.tokens - 1) // length * length if training else split.tokens - 1
        if count < 1:
            with refused(DataError, "data-too-small", split.tokens, length):
                Sequences(split, length, batch * parts, training=training)
            continue
        found = Sequences(split, length, batch * parts, seed=1, training=training)
        targets, inputs_ = [], []
        for part in range(parts):
            batches = list(found.epoch(epoch, 0, (part, parts)))
            assert len(batches) == found.steps
            for one in batches:
                assert one.tokens.shape == one.targets.shape == (batch, length)
                real = one.targets != IGNORED
                targets += one.targets[real].tolist()
                inputs_ += one.tokens[real].tolist()
        assert sorted(targets) == list(range(1, count + 1))
        assert [target - 1 for target in targets] == inputs_
        assert sum(found.targets(epoch, step) for step in range(found.steps)) == count


@settings(max_examples=30, deadline=None)
@given(step=st.integers(0, 9), epoch=st.integers(0, 3), parts=st.sampled_from([1, 2, 4]))
def test_a_batch_depends_on_seed_epoch_and_step_only(step: int, epoch: int, parts: int) -> None:
    """Therefore a training can resume within an epoch, and on any number of ranks."""
    whole = list(Sequences(counted([50, 111]), 4, 4, seed=1, training=True).epoch(epoch))[step]
    other = Sequences(counted([50, 111]), 4, 4, seed=1, training=True)
    found = [next(other.epoch(epoch, step, (part, parts))) for part in range(parts)]
    assert torch.equal(torch.cat([one.tokens for one in found]), whole.tokens)
    assert torch.equal(torch.cat([one.targets for one in found]), whole.targets)


def test_epochs_and_seeds_have_other_orders() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        found = Sequences(counted([400]), 4, 8, seed=seed, training=True).epoch(epoch)
        return torch.cat([one.tokens for one in found]).flatten().tolist()

    assert order(1, 0) == order(1, 0)
    assert order(1, 0) != order(1, 1)
    assert order(1, 0) != order(2, 0)


def test_documents_are_those_of_the_tokens() -> None:
    split = counted([7, 5])  # documents of 3, 3, 1 and of 3, 2 tokens
    batches = list(Sequences(split, 11, 1, documents=True).epoch(0))
    assert batches[0].documents is not None
    assert batches[0].documents.tolist() == [[0, 0, 0, 1, 1, 1, 2, 3, 3, 3, 4]]


def test_the_parts_of_a_sequence_are_consecutive() -> None:
    batch = next(Sequences(counted([40]), 8, 2, documents=True).epoch(0))
    parts = [batch.part(index, 4) for index in range(4)]
    assert torch.equal(torch.cat([one.tokens for one in parts], 1), batch.tokens)
    assert parts[1].positions.tolist() == [[2, 3], [2, 3]]
    assert parts[1].tokens.is_contiguous()


def test_a_token_outside_of_the_vocabulary_is_named() -> None:
    split = Split("train", [Tokens(np.array([1, 2, 300, 4]), np.array([4]))], 4, 257)
    with refused(DataError, "record-invalid", "'train'", 300, 257):
        next(Sequences(split, 3, 1).epoch(0))


def test_the_synthetic_text_is_deterministic_and_has_the_stated_entropy() -> None:
    text = synthetic("train", 60000, 17)
    assert np.array_equal(text.shards[0].tokens, synthetic("train", 60000, 17).shards[0].tokens)
    tokens = text.shards[0].tokens
    pairs = np.zeros((17, 17))
    np.add.at(pairs, (tokens[:-1], tokens[1:]), 1)
    rows = pairs / np.maximum(pairs.sum(1, keepdims=True), 1)
    logs = np.log2(rows, out=np.zeros_like(rows), where=rows > 0)
    entropy = -(pairs.sum(1) / pairs.sum() * (rows * logs).sum(1)).sum()
    bound = -sum(p * np.log2(p) for p in PROBABILITIES)
    assert bound == 1.75
    assert entropy <= bound + 0.01  # a little less, because some successors are equal
    assert not np.array_equal(tokens[:8192], synthetic("val", 8192, 17).shards[0].tokens)


@pytest.mark.parametrize("batch", [24, 4096])
def test_a_synthetic_text_fills_all_batches_of_a_training(batch: int) -> None:
    options = TrainSettings(synthetic=True, model="gpt2-5m", sequence=64, batch_size=batch)
    train = inputs.open_inputs(options, SHAPES["gpt2-5m"]).train
    assert [train.targets(0, step) for step in range(train.steps)] == [64 * batch] * train.steps


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    return packed_text.pack(
        tmp_path / "text", {"train": [[[1, 2, 3], [4, 5]], [[6]]], "val": [[[7, 8]]]}
    )


def test_a_packed_text_is_read_with_its_ends_and_sizes(packed: Path) -> None:
    text = inputs.open_text(packed, 5)
    assert (text.vocabulary, sorted(text.splits)) == (257, ["train", "val"])
    train = text.split("train")
    assert [shard.tokens.tolist() for shard in train.shards] == [
        [1, 2, 3, 256, 4, 5, 256], [6, 256],
    ]
    assert [shard.ends.tolist() for shard in train.shards] == [[4, 7], [2]]
    assert (train.text_bytes, text.split(None).name, text.split(None).text_bytes) == (6, "val", 2)
    with refused(DataError, "split-missing", "'odd'", "train, val"):
        text.split("odd")


def test_damage_is_found_before_the_training(packed: Path) -> None:
    shard = packed / "train-00001.safetensors"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with refused(DataError, "data-damaged", shard):
        inputs.open_text(packed, 5)
    shard.write_bytes(content)
    (packed / "tokenizer.json").write_text("{}")
    with refused(DataError, "checksum-mismatch", packed / "tokenizer.json"):
        inputs.open_text(packed, 5)
    (packed / "tokenizer.json").unlink()
    with refused(DataError, "data-damaged", packed / "tokenizer.json"):
        inputs.open_text(packed, 5)


def test_pictures_are_refused(packed: Path) -> None:
    path = packed / "dataset.json"
    document = json.loads(path.read_text())
    del document["text"]
    image = {"channels": 1, "mean": [0.5], "std": [0.5], "encoding": "png", "height": 8, "width": 8}
    path.write_text(json.dumps(
        document | {"sample": "image", "format": "webdataset", "image": image}
    ))
    with refused(DataError, "data-unsuitable", path, "image"):
        inputs.open_text(packed, 5)
