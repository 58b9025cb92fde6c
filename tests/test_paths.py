from __future__ import annotations

from pathlib import Path

import pytest

from trimaran import paths


def test_a_relative_cache_and_checkout_are_made_absolute_at_once(
    own_place: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", "here/cache")
    assert paths.cache("images") == own_place / "here/cache/images"
    monkeypatch.setenv("TRIMARAN_ROOT", "../checkout")
    assert paths.repository().is_absolute()
    assert paths.repository().resolve() == checkout
