"""Tests of meshes of ranks: sizes, random numbers, digests and states of sharded weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import Shard
from torch.distributed.tensor.placement_types import _StridedShard

from trainkit import ranks
from trainkit.exits import ArgumentError
from trainkit.pieces import Piece, Stored
from trainkit.testing.refusals import refused
from trainkit.torch import sharded
from trainkit.torch.mesh import REST, Mesh, MeshRandomState, seed_by_coordinates, spread
from trainkit.torch.sharded import Place, ShardedOptimizer, ShardedWeights
from trainkit.torch.strategy import TorchStrategy


def test_one_axis_gets_the_ranks_that_the_others_leave() -> None:
    assert spread({"a": 2, "b": REST, "c": 3}, 12) == {"a": 2, "b": 2, "c": 3}
    assert spread({"a": 4, "b": REST}, 4) == {"a": 4, "b": 1}
    assert spread({"a": 2, "b": 3}, 6) == {"a": 2, "b": 3}


@pytest.mark.parametrize(
    ("axes", "ranks"), [({"a": 3, "b": REST}, 4), ({"a": 8, "b": REST}, 4), ({"a": 2, "b": 3}, 5)]
)
def test_a_mesh_that_is_not_the_number_of_ranks_is_refused(
    axes: dict[str, int], ranks: int
) -> None:
    fixed = max(axes["a"] * axes["b"], axes["a"])
    with refused(ArgumentError, "ranks-uneven", f"a {axes['a']}", f"{ranks} ranks", fixed):
        spread(axes, ranks)


class Ranks(Mesh):
    """A substitute for a mesh, whose ranks have the digests `digests` of their weights."""

    def __init__(self, digests: list[str]) -> None:
        self.digests = digests

    def gather(self, value: Any) -> list[Any]:
        return self.digests


def test_only_ranks_that_hold_the_same_weights_must_agree() -> None:
    same = ["aa 0,2\nff 0,1,2,3", "bb 1,3\nff 0,1,2,3", "aa 0,2\nff 0,1,2,3", "bb 1,3\nff 0,1,2,3"]
    assert Ranks(same).agree(same[0])
    for wrong in ("cc 0,2\nff 0,1,2,3", "aa 0,2\nfe 0,1,2,3"):
        assert not Ranks([*same[:2], wrong, same[3]]).agree(same[0])


def test_a_digest_changes_with_each_value_and_name() -> None:
    weights = {"a": torch.zeros(3), "b": torch.ones(2)}
    at = sharded.places(weights, TorchStrategy())
    digest = sharded.digest(weights, at)
    assert len(digest) == 64
    other = {"a": torch.zeros(3), "b": torch.tensor([1.0, 1.0000001])}
    assert sharded.digest(other, at) != digest
    renamed = {"a": torch.zeros(3), "c": torch.ones(2)}
    assert sharded.digest(renamed, sharded.places(renamed, TorchStrategy())) != digest
    split = {"a": at["a"], "b": Place((2,), (0,), (2,), (0, 1))}
    assert sorted(line.partition(" ")[2] for line in sharded.digest(weights, split).split("\n")) \
        == ["0", "0,1"]


@pytest.mark.parametrize(("data", "tensor"), [(4, 2), (2, 4), (3, 3), (8, 1), (1, 8)])
@pytest.mark.parametrize("rows", [257, 64, 5])
def test_pieces_of_fsdp_are_those_of_the_pieces_of_tensor_parallelism(
    rows: int, data: int, tensor: int
) -> None:
    """`piece_at` returns the right rows of a weight that is divided twice.

    Tensor parallelism divides the weight first, then FSDP divides the resulting pieces.

    The expected pieces come from `torch.chunk`; they may differ in size, or be empty.
    """
    whole = torch.arange(rows * 3).view(rows, 3)
    how = [_StridedShard(0, split_factor=tensor), Shard(0)]
    for outer in range(tensor):
        own = [*whole.chunk(tensor), *[whole[:0]] * tensor][outer]
        parts = [*own.chunk(data), *[own[:0]] * data]
        for inner in range(data):
            (first, _), (count, _) = sharded.piece_at(
                (rows, 3), how, (data, tensor), (inner, outer)
            )
            assert torch.equal(whole[first : first + count], parts[inner])


def test_the_norm_counts_each_piece_once() -> None:
    """If two ranks hold a piece, each rank adds half of the squares of its gradient to the norm."""
    weight, other = (torch.zeros(2, requires_grad=True) for _ in range(2))
    weight.grad, other.grad = torch.tensor([3.0, 4.0]), torch.tensor([0.0, 12.0])
    named = {"a": weight, "b": other}
    at = {"a": Place((2,), (0,), (2,), (0, 1)), "b": Place((4,), (0,), (2,), (0,))}
    found = sharded.gradient_norm(named, at, TorchStrategy())
    assert found.item() == pytest.approx((25 / 2 + 144) ** 0.5)
    sharded.scale_gradients(named, torch.tensor(0.5, dtype=torch.float64))
    assert weight.grad.tolist() == [1.5, 2.0]


def stored(state: dict[str, Any], tmp_path: Any) -> dict[str, Stored]:
    from trainkit import pieces

    assert all(isinstance(value, Piece) for value in state.values())
    return pieces.stored(tmp_path, [pieces.write(tmp_path / "a.safetensors", state)])


def test_weights_and_optimizer_come_back_with_the_same_bits(tmp_path: Any) -> None:
    strategy = TorchStrategy()
    weights = {"a": torch.randn(3, 4), "b": torch.randn(2).bfloat16()}
    at = sharded.places(weights, strategy)
    found = stored(ShardedWeights(weights, at, strategy).state_dict(), tmp_path)
    other = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
    ShardedWeights(other, at, strategy).load_state_dict(found)
    assert all(torch.equal(other[name], weights[name]) for name in weights)

    states: dict[Tensor, Any] = {
        weight: {"step": torch.tensor(3.0), "mean": torch.randn_like(weight)}
        for weight in weights.values()
    }
    kept = ShardedOptimizer(lambda: states, weights, at, strategy).state_dict()
    assert sorted(kept) == ["a:mean", "a:step", "b:mean", "b:step"]
    loaded: dict[Tensor, Any] = {}
    ShardedOptimizer(lambda: loaded, other, at, strategy).load_state_dict(stored(kept, tmp_path))
    for name, weight in weights.items():
        assert torch.equal(loaded[other[name]]["mean"], states[weight]["mean"])
        assert loaded[other[name]]["step"].item() == 3


def test_a_rank_reads_its_piece_of_weights_and_of_moments(tmp_path: Path) -> None:
    """The second of two ranks resumes from a checkpoint of one process, and reads its rows only."""
    strategy, whole, moments = TorchStrategy(), torch.randn(4, 3), torch.randn(4, 3)
    at = sharded.places({"a": whole}, strategy)
    states: dict[Tensor, Any] = {whole: {"step": torch.tensor(3.0), "mean": moments}}
    own, loaded = torch.zeros(2, 3), dict[Tensor, Any]()
    here = {"a": Place((4, 3), (2, 0), (2, 3), (1,))}
    ShardedWeights({"a": own}, here, strategy).load_state_dict(
        stored(ShardedWeights({"a": whole}, at, strategy).state_dict(), tmp_path)
    )
    kept = ShardedOptimizer(lambda: states, {"a": whole}, at, strategy).state_dict()
    ShardedOptimizer(lambda: loaded, {"a": own}, here, strategy).load_state_dict(
        stored(kept, tmp_path)
    )
    assert torch.equal(own, whole[2:])
    assert torch.equal(loaded[own]["mean"], moments[2:])
    assert loaded[own]["step"].item() == 3


def test_one_of_the_holders_writes_a_piece() -> None:
    """If two ranks hold each piece, one of them writes it, and each rank writes some pieces."""
    weights = {f"weight {n}": torch.ones(2) for n in range(40)}
    at = dict.fromkeys(weights, Place((2,), (0,), (2,), (1, 3)))
    owned = []
    for rank in range(4):
        strategy = TorchStrategy(ranks.Ranks("torchrun", rank, 4))
        state = ShardedWeights(weights, at, strategy).state_dict()
        owned.append({name for name, piece in state.items() if piece.owned})
    assert not owned[0] | owned[2]
    assert not owned[1] & owned[3]
    assert owned[1] | owned[3] == weights.keys()
    assert min(len(owned[1]), len(owned[3])) > 10


def test_all_values_of_an_optimizer_are_on_the_device_of_the_weight(tmp_path: Any) -> None:
    """The step count, too, is loaded to the weight's device: PyTorch's fused optimizers need it."""
    strategy, weight = TorchStrategy(), torch.randn(3)
    at = sharded.places({"a": weight}, strategy)
    states: dict[Tensor, Any] = {weight: {"step": torch.tensor(3.0), "mean": torch.zeros(3)}}
    kept = ShardedOptimizer(lambda: states, {"a": weight}, at, strategy).state_dict()
    other, loaded = weight.to("meta"), dict[Tensor, Any]()
    ShardedOptimizer(lambda: loaded, {"a": other}, at, strategy).load_state_dict(
        stored(kept, tmp_path)
    )
    assert {key: value.device for key, value in loaded[other].items()} == {
        "step": other.device, "mean": other.device
    }


def test_weights_of_another_shape_are_named(tmp_path: Any) -> None:
    strategy = TorchStrategy()
    weights = {"a": torch.randn(3, 4), "b": torch.randn(2)}
    found = stored(
        ShardedWeights(weights, sharded.places(weights, strategy), strategy).state_dict(), tmp_path
    )
    for other, words in (
        ({"a": torch.zeros(3, 5), "b": torch.zeros(2)}, "another shape of a (3x4, here 3x5)"),
        ({"a": torch.zeros(3, 4), "c": torch.zeros(2)}, "has no c"),
    ):
        part = ShardedWeights(other, sharded.places(other, strategy), strategy)
        with pytest.raises(ValueError, match=r"the checkpoint ") as caught:
            part.load_state_dict(found)
        assert words in str(caught.value)
    values = {"a:mean": found["a"]}
    part_of_optimizer = ShardedOptimizer(
        dict, weights, sharded.places(weights, strategy), strategy
    )
    with pytest.raises(ValueError, match="no values of the optimizer for b"):
        part_of_optimizer.load_state_dict(values)


def test_random_numbers_continue_in_the_same_mesh_and_begin_anew_in_another() -> None:
    strategy = TorchStrategy()
    part = MeshRandomState(strategy)
    seed_by_coordinates(3, strategy)
    torch.rand(5)
    state = part.state_dict()
    expected = torch.rand(5)
    tensors = {**state, "ranks": [{"cpu": torch.from_numpy(np.array(state["ranks"][0]["cpu"]))}]}
    torch.rand(7)
    part.load_state_dict(tensors)
    assert torch.equal(torch.rand(5), expected)
    drawn = []
    for _ in range(2):
        part.load_state_dict({**tensors, "mesh": {"data": 2}})
        drawn.append(torch.rand(5))
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0], expected)
