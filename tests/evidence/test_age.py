"""Evidence is stale from the day after its first birthday."""

from __future__ import annotations

from datetime import date

import pytest

from trimaran.evidence import age


@pytest.mark.parametrize(("day", "today", "stale"), [
    (date(2025, 11, 28), date(2026, 11, 28), False),
    (date(2025, 11, 27), date(2026, 11, 28), True),
    (date(2026, 11, 28), date(2026, 11, 28), False),
    (date(2026, 12, 1), date(2026, 11, 28), False),
    (date(2024, 2, 29), date(2025, 3, 1), False),
    (date(2024, 2, 29), date(2025, 3, 2), True),
])
def test_evidence_is_stale_after_twelve_months(day: date, today: date, stale: bool) -> None:
    assert age.is_stale(day, today) is stale
