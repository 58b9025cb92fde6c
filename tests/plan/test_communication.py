"""Test the predicted times of messages, all-reduces and parameter servers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimaran.plan import communication
from trimaran.plan.communication import LINK_SHARE, Layout, Wire, all_reduce

FAST, SLOW = Wire(1e11, 0), Wire(1e10, 0)


def test_one_device_sends_nothing() -> None:
    assert all_reduce(1e9, Layout(1, 1, FAST, SLOW)) == 0


def test_two_devices_of_a_ring_send_all_bytes_once() -> None:
    assert all_reduce(9e8, Layout(1, 2, SLOW)) == pytest.approx(9e8 / (LINK_SHARE * 1e10))


def test_a_large_ring_sends_all_bytes_twice() -> None:
    one = all_reduce(9e8, Layout(1, 2, SLOW))
    assert all_reduce(9e8, Layout(1, 10_000, SLOW)) == pytest.approx(2 * one, rel=1e-3)


def test_the_bound_of_two_nodes_of_gh200_is_as_published() -> None:
    """The predicted bus bandwidth of two nodes of GH200 is within 1 % of the published one.

    Four links of 25 GB/s per node; bus bandwidth = 2 (n - 1) / n x bytes / time.
    """
    seconds = all_reduce(8e9, Layout(2, 4, Wire(150e9, 0), Wire(100e9, 0)))
    assert 2 * 7 / 8 * 8 / seconds == pytest.approx(175 * LINK_SHARE)
    assert pytest.approx(158.65, rel=0.01) == 175 * LINK_SHARE


def test_a_small_message_goes_through_a_tree() -> None:
    wire = Wire(1e10, 1e-6)
    assert all_reduce(4, Layout(1024, 1, None, wire)) == pytest.approx(20e-6, rel=0.01)


def test_the_slower_level_determines_the_time() -> None:
    assert all_reduce(1e9, Layout(2, 4, FAST, SLOW)) == all_reduce(1e9, Layout(2, 1, None, SLOW))


@given(st.floats(1, 1e11), st.floats(1, 1e11), st.integers(1, 512), st.integers(1, 16))
def test_more_bytes_never_take_less_time(one: float, two: float, nodes: int, devices: int) -> None:
    layout = Layout(nodes, devices, Wire(1e11), Wire(1e10))
    small, large = sorted((one, two))
    assert all_reduce(small, layout) <= all_reduce(large, layout)


@given(st.integers(1, 4096))
def test_more_nodes_never_take_less_time(nodes: int) -> None:
    wire = Wire(1e10)
    before, after = (all_reduce(1e8, Layout(count, 1, None, wire)) for count in (nodes, nodes + 1))
    assert before <= after * (1 + 1e-12)


def test_large_tensors_are_divided_over_all_servers() -> None:
    assert communication.largest_share([4_000_000, 8_000_000], 4) == pytest.approx(1 / 4)


def test_a_small_tensor_is_on_one_server() -> None:
    assert communication.largest_share([1000], 4) == 1
    assert communication.largest_share([1000, 1000], 2) == pytest.approx(1 / 2)  # keys 0 and 1


def test_a_server_sends_and_receives_for_all_other_nodes() -> None:
    """Each of two nodes is the parameter server of half of the weights.

    A node therefore receives the other half of the weights, and the other node's gradients of
    its own half.
    """
    seconds = communication.parameter_server([2_000_000], 8e6, Layout(2, 1, None, SLOW))
    assert seconds == pytest.approx(8e6 / (LINK_SHARE * 1e10))


def test_copies_are_made_in_turn() -> None:
    one = communication.copies(9e8, Layout(1, 2, SLOW))
    assert one == pytest.approx(9e8 / (LINK_SHARE * 1e10))
    assert communication.copies(9e8, Layout(1, 8, SLOW)) == pytest.approx(7 * one)


def test_a_device_gathers_the_parts_of_all_others() -> None:
    inside = communication.gather(8e8, Layout(1, 8, SLOW))
    assert inside == pytest.approx(7e8 / (LINK_SHARE * 1e10))
    outside = communication.gather(8e8, Layout(4, 8, FAST, SLOW))
    assert outside == pytest.approx(6e8 / (LINK_SHARE * 1e10))


def test_one_node_needs_no_server() -> None:
    layout = Layout(1, 4, FAST, SLOW)
    assert communication.parameter_server([10], 40, layout) == all_reduce(40, layout)
