"""Tests of checkpoints of PyTorch: tensors are restored bit by bit, in the same memory layout."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from trainkit import statefile
from trainkit.exits import DataError
from trainkit.parts import restore, snapshot
from trainkit.ranks import Ranks
from trainkit.testing.refusals import refused
from trainkit.torch.optim import Lars, decay_groups, moving_average
from trainkit.torch.parts import RandomState, digest, parts
from trainkit.torch.strategy import TorchStrategy

KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn]


class Training:
    """A small training, whose state the tests save and restore; `step` changes the whole state."""

    def __init__(self, way: str = "sgd") -> None:
        self.network = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.3))
        self.network.to(memory_format=torch.channels_last)
        groups = decay_groups(self.network.parameters(), 0.01)
        self.optimizer: Any = {
            "sgd": lambda: torch.optim.SGD(groups, 0.1, 0.9),
            "adam": lambda: torch.optim.Adam(self.network.parameters(), 0.1),
            "lars": lambda: Lars(groups, 0.1),
        }[way]()
        self.average = moving_average(self.network, 0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=1)
        self.parts = parts(
            network=self.network, optimizer=self.optimizer, average=self.average,
            scaler=self.scaler, random=RandomState(TorchStrategy()),
        )

    def step(self) -> None:
        images = torch.randn(3, 2, 5, 5).to(memory_format=torch.channels_last)
        self.optimizer.zero_grad()
        self.scaler.scale(self.network(images).square().sum()).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.average.update_parameters(self.network)


def through_file(state: dict[str, Any], folder: Path) -> dict[str, Any]:
    with (folder / "state.npz").open("wb") as file:
        statefile.write(state, file)
    return statefile.read(folder / "state.npz")


@pytest.mark.parametrize("way", ["sgd", "adam", "lars"])
def test_a_training_goes_on_to_the_same_bits(way: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    one = Training(way)
    for _ in range(3):
        one.step()
    state = through_file(snapshot(one.parts), tmp_path)
    one.step()
    torch.manual_seed(2)
    two = Training(way)
    two.step()  # whatever it was before
    restore(two.parts, state)
    two.step()
    assert two.scaler.get_scale() == 8.0 * 2**4
    for name in one.parts:
        first, second = (flat(training.parts[name].state_dict()) for training in (one, two))
        assert first == second, name
    for ours, theirs in zip(layouts(one), layouts(two), strict=True):
        assert ours == theirs


def flat(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [flat(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value


def layouts(training: Training) -> list[tuple[int, ...]]:
    """Return the strides of the weights and of the optimizer's state."""
    kept = [t for state in training.optimizer.state.values() for t in state.values()]
    tensors = [*training.network.state_dict().values(), *kept]
    return [tensor.stride() for tensor in tensors if isinstance(tensor, Tensor)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_type_of_weight_comes_back(kind: torch.dtype, tmp_path: Path) -> None:
    def network(value: float) -> nn.Module:
        module = nn.Linear(3, 2)
        module.weight = nn.Parameter(torch.full((2, 3), value).to(kind), requires_grad=False)
        return module

    state = through_file(snapshot(parts(network=network(1.5))), tmp_path)
    other = network(0.0)
    restore(parts(network=other), state)
    assert other.weight.dtype is kind
    assert other.weight.to(torch.float32).tolist() == [[1.5] * 3] * 2


def test_a_network_of_other_shapes_is_named_with_the_entries() -> None:
    state = snapshot(parts(generator=nn.Linear(3, 2), other=nn.Linear(1, 1)))
    mine = parts(generator=nn.Linear(4, 2), other=nn.Linear(1, 1))
    with refused(DataError, "checkpoint-mismatch", "generator: ", "weight (2x3, here 2x4)"):
        restore(mine, state)


def test_an_optimizer_of_other_weights_is_named() -> None:
    def optimizer(*sizes: int) -> torch.optim.Optimizer:
        return torch.optim.SGD([nn.Parameter(torch.zeros(n)) for n in sizes], 0.1)

    state = snapshot(parts(optimizer=optimizer(1, 2)))
    with refused(DataError, "checkpoint-mismatch", "optimizer: ", "parameter group"):
        restore(parts(optimizer=optimizer(1)), state)


@pytest.mark.parametrize("found", [{}, {"weight": 1, "bias": 2}, {"ranks": []}])
def test_parts_of_anything_are_refused(found: dict[str, Any]) -> None:
    for mine in (parts(a=nn.Linear(1, 1)), parts(a=RandomState(TorchStrategy()))):
        with refused(DataError, "checkpoint-mismatch", ": a: "):
            restore(mine, {"a": found})


class Second(TorchStrategy):
    """Rank 1 of two ranks; `gather` returns a random state with the seed 7 for rank 0."""

    def gather(self, value: Any) -> list[Any]:
        return [{"cpu": torch.Generator().manual_seed(7).get_state().numpy()}, value]


def test_each_rank_goes_on_with_random_numbers_of_its_own() -> None:
    torch.manual_seed(11)
    torch.rand(3)
    second = parts(random=RandomState(Second(Ranks("Slurm", 1, 2, 0, 1))))
    kept = snapshot(second)
    own = torch.rand(4).tolist()
    restore(second, kept)
    assert torch.rand(4).tolist() == own
    restore(parts(random=RandomState(TorchStrategy(Ranks("Slurm", 0, 2, 0, 1)))), kept)
    first = torch.rand(4, generator=torch.Generator().manual_seed(7)).tolist()
    assert torch.rand(4).tolist() == first != own


def test_a_digest_tells_networks_apart() -> None:
    network = nn.Linear(2, 2)
    before = digest([network])
    assert before == digest([network])
    with torch.no_grad():
        network.weight[0, 0] += 1e-6  # not the last one: each of them counts
    assert digest([network]) != before
