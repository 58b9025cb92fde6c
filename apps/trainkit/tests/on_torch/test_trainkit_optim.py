"""Tests of LARS against its algorithm written out, of parameter groups and moving averages."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from trainkit.torch import optim


def by_hand(weight, gradients, rates, *, momentum: float, decay: float, trust: float | None):
    """Return the weights after LARS (You et al., algorithm 1), computed with Python's numbers.

    If the rate changes, the momentum is corrected as in Goyal et al., equation 10 with remark 2:
    the velocity, which contains the rate, is multiplied by the new rate / the old rate.
    """
    velocity = [0.0] * len(weight)
    before = rates[0]
    for gradient, lr in zip(gradients, rates, strict=True):
        norm = math.sqrt(sum(w * w for w in weight))
        slope = math.sqrt(sum(g * g for g in gradient))
        rate = 1.0
        if trust is not None and norm > 0 and slope > 0:
            rate = trust * norm / (slope + decay * norm)
        for i, g in enumerate(gradient):
            velocity[i] = momentum * lr / before * velocity[i] + lr * rate * (g + decay * weight[i])
        weight = [w - v for w, v in zip(weight, velocity, strict=True)]
        before = lr
    return weight


numbers = st.floats(-10, 10).map(lambda x: round(x, 3))
vectors = st.lists(numbers, min_size=3, max_size=3)


@settings(deadline=None)
@given(vectors, st.lists(st.tuples(vectors, st.floats(0.01, 1)), min_size=1), st.booleans())
def test_lars_is_the_algorithm_of_the_paper(start, steps, trusted: bool) -> None:
    gradients, rates = zip(*steps, strict=True)
    weight = nn.Parameter(torch.tensor([start], dtype=torch.float64))
    trust = 0.001 if trusted else None
    groups = [{"params": [weight], "weight_decay": 1e-4, "trust": trust}]
    lars = optim.Lars(groups, 1.0, 0.9)
    for gradient, lr in steps:
        lars.param_groups[0]["lr"] = lr
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        lars.step()
    expected = by_hand(start, gradients, rates, momentum=0.9, decay=1e-4, trust=trust)
    assert weight[0].tolist() == pytest.approx(expected, abs=1e-9)


def test_each_layer_has_a_rate_of_its_own_and_those_of_the_paper_unless_told() -> None:
    """LARS gives three layers and one bias the weights that `by_hand` computes in plain Python.

    The defaults, trust 0.001 and momentum 0.9, are the values in You et al., arXiv:1708.03888,
    section 5.
    """
    start = [[3.0, 4.0, 0.0], [0.1, 0.0, 0.2], [50.0, -20.0, 10.0], [1.0, 2.0, 2.0]]
    slopes = [[[0.5, 0.5, -1.0], [8.0, 0.0, 6.0], [0.0, 0.1, 0.0], [3.0, 0.0, 4.0]],
              [[1.0, -0.5, 2.0], [0.3, 0.4, 0.0], [9.0, 0.0, 1.0], [0.0, 1.0, 0.0]]]
    layers = [nn.Parameter(torch.tensor([row], dtype=torch.float64)) for row in start[:3]]
    layers.append(nn.Parameter(torch.tensor(start[3], dtype=torch.float64)))
    lars = optim.Lars(optim.decay_groups(layers, 0.25), 2.0)
    for step in slopes:
        for layer, row in zip(layers, step, strict=True):
            layer.grad = torch.tensor(row, dtype=torch.float64).reshape(layer.shape)
        lars.step()
    for number, (layer, row) in enumerate(zip(layers, start, strict=True)):
        trust, decay = (None, 0.0) if number == 3 else (0.001, 0.25)
        own = [step[number] for step in slopes]
        wanted = by_hand(row, own, [2.0, 2.0], momentum=0.9, decay=decay, trust=trust)
        assert layer.detach().flatten().tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("start", "gradient"), [(2.0, 0.0), (0.0, 3.0), (0.0, 0.0)])
def test_a_layer_without_weights_or_gradient_takes_the_rate_1(
    start: float, gradient: float
) -> None:
    weight = nn.Parameter(torch.full((2, 2), start))
    weight.grad = torch.full_like(weight, gradient)
    optim.Lars([{"params": [weight], "weight_decay": 0.25}], 0.5, trust=0.001).step()
    assert weight[0, 0].item() == start - 0.5 * (gradient + 0.25 * start)


def test_lars_goes_on_from_its_state_dict() -> None:
    def steps(lars: optim.Lars, weight: nn.Parameter, count: int) -> None:
        for number in range(count):
            weight.grad = torch.full_like(weight, number + 1.0)
            lars.step()

    one = nn.Parameter(torch.ones(2, 2))
    first = optim.Lars(optim.decay_groups([one], 0.1), 0.5)
    steps(first, one, 2)
    two = nn.Parameter(one.detach().clone())
    second = optim.Lars(optim.decay_groups([two], 0.1), 0.5)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    steps(first, one, 3)
    steps(second, two, 3)
    assert torch.equal(one, two)


def test_only_weights_decay_and_have_a_rate_of_their_own() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 2))
    weights, others = optim.decay_groups(network.parameters(), 0.1)
    assert [p.ndim for p in weights["params"]] == [4, 2]
    assert all(p.ndim == 1 for p in others["params"])
    assert (weights["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert "trust" not in weights
    assert others["trust"] is None
    assert len(weights["params"]) + len(others["params"]) == len(list(network.parameters()))


def test_a_moving_average_follows_weights_and_statistics() -> None:
    network = nn.BatchNorm1d(1)
    average = optim.moving_average(network, 0.9)
    average.update_parameters(network)  # the first one copies
    with torch.no_grad():
        network.weight.fill_(2.0)
        network.running_mean.fill_(1.0)
    average.update_parameters(network)
    assert average.module.weight.item() == pytest.approx(0.9 * 1 + 0.1 * 2)
    with torch.no_grad():
        network.num_batches_tracked.fill_(7)
    average.update_parameters(network)
    assert average.module.weight.item() == pytest.approx(0.9 * 1.1 + 0.1 * 2)
    assert average.module.running_mean.item() == pytest.approx(0.19)
    assert average.module.num_batches_tracked.item() == 7
