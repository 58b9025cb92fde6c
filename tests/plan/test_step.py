"""Test the predicted time of a step: overlapping communication, and slow devices."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from trimaran.plan import step
from trimaran.plan.communication import Layout, Wire
from trimaran.plan.step import CONTENTION, VARIATION, predict
from trimaran.plan.work import Layer, Network

LARGE = 25_000_000
"""Number of values in a tensor of 100 MB, which is larger than a bucket of gradients."""


def network(*layers: tuple[int, int]) -> Network:
    """Return a network; each of `layers` is (number of parameters, operations)."""
    return Network("made-up", tuple(Layer(str(at), (size,), flops, 1)
                                    for at, (size, flops) in enumerate(layers)))


def alone(count: int) -> float:
    """Return the expected time of the slowest of `count` devices, relative to the mean."""
    return 1 + VARIATION * step.expected_maximum(count)


def test_one_device_waits_for_nobody() -> None:
    found = predict(network((LARGE, 1)), 2.0, Layout(1, 1))
    assert (found.seconds, found.efficiency) == (2, 1)


def test_without_gradients_only_stragglers_cost_time() -> None:
    found = predict(network((0, 1)), 1.0, Layout(4, 1, None, Wire(1e10)))
    assert found.seconds == pytest.approx(alone(4))


def test_gradients_that_are_complete_last_are_exposed() -> None:
    """The backward pass reaches the first layer last, so nothing hides its exchange."""
    wire = Wire(1e10, 0)
    found = predict(network((LARGE, 1), (0, 1)), 1.0, Layout(2, 1, None, wire))
    assert found.exposed == pytest.approx(1e8 / 0.9e10)
    assert found.contention == pytest.approx(0, abs=1e-12)


def test_gradients_that_are_complete_first_are_hidden() -> None:
    """The exchange of the last layer can overlap with the rest of the backward pass."""
    wire = Wire(1e10, 0)
    found = predict(network((0, 9), (LARGE, 1)), 1.0, Layout(2, 1, None, wire))
    assert found.exposed == 0
    assert found.contention == pytest.approx(CONTENTION * 1e8 / 0.9e10)


def test_what_does_not_fit_into_the_backward_pass_is_exposed() -> None:
    """An exchange prolongs the step only by the time that it takes after the backward pass.

    The computation takes about 1 s: 1/3 of it is the forward pass, and 2/3 are the backward
    pass. The exchange takes about 11 s, and begins after 1/10 of the backward pass.
    """
    wire = Wire(1e7, 0)
    found = predict(network((0, 9), (LARGE, 1)), 1.0, Layout(2, 1, None, wire))
    compute = alone(2)
    assert found.exposed == pytest.approx(compute * 0.4 + 1e8 / 0.9e7 - compute)


def test_an_exchange_at_the_end_is_exposed() -> None:
    layout = Layout(2, 1, None, Wire(1e10, 0))
    found = predict(network((0, 9), (LARGE, 1)), 1.0, layout, "all-reduce-after")
    assert found.exposed == found.communication == pytest.approx(1e8 / 0.9e10)
    assert found.contention == 0


def test_small_gradients_are_sent_together() -> None:
    wire = Wire(1e12, 1e-3)
    one = predict(network(*[(10, 1)] * 50), 1.0, Layout(2, 1, None, wire))
    assert one.communication == pytest.approx(2e-3, rel=0.01)  # one message each way, not 50


def test_weights_of_servers_are_received_beside_the_next_step() -> None:
    fast = predict(network((LARGE, 1)), 1.0, Layout(2, 1, None, Wire(1e10)), "parameter-server")
    slow = predict(network((LARGE, 1)), 1.0, Layout(2, 1, None, Wire(1e7)), "parameter-server")
    assert fast.exposed == 0
    assert slow.seconds > 1e8 / 0.9e7


def test_data_parallel_hides_no_copy() -> None:
    found = step.copied(1.0, Layout(1, 8, Wire(1e10)), 9e9)
    assert found.seconds == pytest.approx(alone(8) + 7)


def test_fsdp_gathers_weights_in_the_precision_of_the_step() -> None:
    layout, made = Layout(1, 8, Wire(1e10)), network((LARGE, 1))
    for width in (2, 4):
        found = predict(made, 1.0, layout, "sharded", width)
        assert found == step.sharded(1.0, layout, width * LARGE)
    assert predict(made, 1.0, Layout(1, 1), "sharded", 2).seconds == 1


def test_fsdp_gathers_twice_and_scatters_once() -> None:
    layout = Layout(1, 8, Wire(1e10))
    found = step.sharded(100.0, layout, 8e9)
    assert found.communication == pytest.approx(3 * 7e9 / 9e9)
    assert found.exposed == 0
    short = step.sharded(1.0, layout, 8e9)
    assert short.exposed == pytest.approx(found.communication - alone(8))


@pytest.mark.parametrize("count", [2, 8, 64])
def test_the_expected_maximum_is_that_of_random_values(count: int) -> None:
    values = random.Random(1)  # noqa: S311 - not for secrets
    drawn = fmean(max(values.gauss() for _ in range(count)) for _ in range(4000))
    assert step.expected_maximum(count) == pytest.approx(drawn, abs=0.05)
