"""Tests of the order of samples, the division among ranks, and the random numbers of each step.

Order and random numbers depend only on (seed, epoch, step), whatever the number of ranks.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainkit.data.order import Plan


def test_each_epoch_and_step_has_draws_of_its_own() -> None:
    """The random numbers differ for each seed, epoch and step, and can be computed again.

    Otherwise, each image would be cropped and flipped in the same way in every epoch.
    """
    plan, other = Plan(100, 16, 1, training=True), Plan(100, 16, 2, training=True)
    draws = [
        chosen.draws(epoch, step, 23).tobytes()
        for chosen in (plan, other) for epoch in (0, 1, 2) for step in (0, 1, 2)
    ]
    assert len(set(draws)) == len(draws)
    assert plan.draws(1, 2, 23).tobytes() == draws[5]
    values = plan.draws(0, 0, 23)
    assert (values.shape, values.dtype) == ((16, 23), np.float32)
    rows = {row.tobytes() for row in values}
    assert len(rows) == 16  # each image its own
    assert values.min() >= 0
    assert values.max() < 1
    assert values.mean() == pytest.approx(0.5, abs=0.05)


def test_each_epoch_has_an_order_of_its_own_and_evaluation_none() -> None:
    orders = [
        tuple(Plan(50, 16, seed, training=True).order(epoch).tolist())
        for seed in (1, 2) for epoch in (0, 1, 2)
    ]
    assert len(set(orders)) == 6
    assert all(sorted(order) == list(range(50)) for order in orders)
    for epoch in (0, 1):
        assert Plan(50, 16, 1, training=False).order(epoch).tolist() == list(range(50))


@pytest.mark.parametrize(("samples", "batch", "ranks"), [(22, 8, 2), (22, 9, 3), (17, 8, 4)])
def test_ranks_have_all_samples_of_a_batch_once(samples: int, batch: int, ranks: int) -> None:
    plan = Plan(samples, batch, 1, training=True)
    assert plan.steps == -(-samples // batch)
    for step in range(plan.steps):
        whole = list(range(min(batch, samples - step * batch)))
        parts = [whole[plan.share(step, rank, ranks)] for rank in range(ranks)]
        assert [n for part in parts for n in part] == whole
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(st.integers(1, 500), st.integers(1, 40), st.integers(1, 9), st.booleans())
def test_shares_of_a_batch_are_disjoint_complete_and_even(
    samples: int, per_rank: int, ranks: int, training: bool
) -> None:
    plan = Plan(samples, per_rank * ranks, 1, training)
    order, seen = plan.order(2), []
    for step in range(plan.steps):
        batch = order[step * plan.batch : (step + 1) * plan.batch]
        shares = [batch[plan.share(step, rank, ranks)].tolist() for rank in range(ranks)]
        lengths = [len(share) for share in shares]
        assert max(lengths) - min(lengths) <= 1
        assert max(lengths) <= per_rank
        for share in shares:
            seen += share
    assert sorted(seen) == list(range(samples))
    assert seen == order.tolist()
