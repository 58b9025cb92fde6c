"""Compare predictions with published scaling series; the site shows the errors."""

from __future__ import annotations

import pytest

from trimaran.plan import base_rate, step, validation, work
from trimaran.plan.communication import LINK_SHARE

TABLE = validation.table()
UNEXPLAINED = ("MXNet with parameter servers, real images, GTX 1080 Ti", 64)
"""Series and number of devices of the only prediction with an error above 25 %.

The note of this series in `series.yaml` explains the error.
"""


def test_the_mean_error_is_within_the_goal() -> None:
    assert validation.mean_error(TABLE) <= 0.10


def test_no_error_is_above_a_quarter_except_where_the_facts_do_not_explain_the_value() -> None:
    far = {(one.series.name, one.devices) for one in TABLE if abs(one.error) > 0.25}
    assert far == {UNEXPLAINED}
    assert all(one.series.note for one in TABLE if one.series.name == UNEXPLAINED[0])


def test_plans_state_the_error_of_this_table() -> None:
    assert round(validation.mean_error(TABLE), 2) == base_rate.SCALING_ERROR


def test_the_first_point_is_not_predicted_and_all_others_are() -> None:
    points = [(series.name, count) for series in validation.load()
              for count in sorted(series.published)[1:]]
    assert [(one.series.name, one.devices) for one in TABLE] == points


def test_the_first_point_comes_out_again() -> None:
    """The prediction for the first size of a series equals the published rate.

    The model derives the computing time of one device from the published time of a step. The step
    also includes communication, because the first size of this series is 32 devices.
    """
    series = next(one for one in validation.load() if 32 in one.published and one.sharded)
    took = series.batch * 32 / series.published[32]
    compute = step.computation(took, lambda seconds: series.step(seconds, 32))
    assert compute < took
    assert series.step(compute, 32).seconds == pytest.approx(took)
    assert series.batch * 32 / series.step(compute, 32).seconds == pytest.approx(
        series.published[32])


def test_other_points_have_the_ratio_of_their_step_times_to_the_first() -> None:
    """The prediction for more devices follows from the published rate at the first size.

    The sizes of a series are numbers of devices. Communication overlaps with computation in
    this series. Therefore a step is longer than its computation only by the slowdown of
    computation during communication (contention), and by the wait for the slowest device.
    """
    series = next(one for one in validation.load() if 32 in one.published and one.sharded)
    (found,) = validation.compare(series)
    within, between, size = series.within, series.between, series.sharded
    assert within is not None
    assert between is not None
    assert size is not None
    took = series.batch * 32 / series.published[32]

    def extra(count: int) -> tuple[float, float]:
        """Return by how much a step on `count` devices exceeds its computing time.

        The first value is the fraction of the computing time that the slowest device adds.
        The second value is the time in seconds that contention with communication adds.
        """
        nodes = count // series.devices
        inside = (series.devices - 1) / series.devices / within.bandwidth
        outside = (nodes - 1) / nodes / between.bandwidth
        gather = size * max(inside, outside) / (LINK_SHARE * 1e9)
        return step.VARIATION * step.expected_maximum(count), step.CONTENTION * 3 * gather

    slower, added = extra(32)
    compute = (took - added) / (1 + slower)
    slower, added = extra(found.devices)
    expected = series.batch * found.devices / (compute * (1 + slower) + added)
    assert found.predicted == pytest.approx(expected)


def test_the_work_of_published_networks_is_that_of_their_papers() -> None:
    """ResNet-50 and VGG-16 have the expected parameters, and operations of a forward pass.

    A multiply-add counts as two operations. ResNet-50 v1.5 has 4.1 G multiply-adds (v1 has
    3.8 G: arXiv:1512.03385, table 1), and VGG-16 has 15.5 G (arXiv:1409.1556).
    """
    resnet, vgg = (work.network("resnet-imagenet", name) for name in ("resnet50", "vgg16"))
    assert (resnet.parameters, vgg.parameters) == (25_557_032, 138_357_544)
    assert 8.1e9 < resnet.flops < 8.3e9
    assert 30.9e9 < vgg.flops < 31.1e9
