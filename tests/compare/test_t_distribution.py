"""Student's t distribution against published tables and the two cases with a closed form."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hostile import quick
from trimaran.compare.noise import cdf, quantile


@pytest.mark.parametrize(
    ("df", "p", "t"),
    [  # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
        (1, 0.975, 12.706), (2, 0.975, 4.303), (4, 0.975, 2.776), (10, 0.975, 2.228),
        (30, 0.975, 2.042), (100, 0.975, 1.984), (2, 0.99, 6.965), (3, 0.995, 5.841),
    ],
)
def test_quantiles_are_those_of_the_tables(df: float, p: float, t: float) -> None:
    assert quantile(p, df) == pytest.approx(t, abs=6e-4)


@quick
@example(1e-9)
@given(st.floats(-1e4, 1e4))
def test_one_and_two_degrees_of_freedom_have_a_closed_form(t: float) -> None:
    assert cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
    assert cdf(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-12)


@quick
@given(st.floats(0.5, 1e5), st.floats(0.5, 0.9999))
def test_the_quantile_is_the_inverse(df: float, p: float) -> None:
    assert cdf(quantile(p, df), df) == pytest.approx(p, abs=1e-9)


@quick
@given(st.floats(-100, 100), st.floats(0.5, 1e4))
def test_both_sides_are_alike(t: float, df: float) -> None:
    assert cdf(t, df) + cdf(-t, df) == pytest.approx(1, abs=1e-12)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert quantile(0.975, 1e7) == pytest.approx(1.959964, abs=1e-5)
