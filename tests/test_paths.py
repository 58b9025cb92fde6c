from __future__ import annotations

from pathlib import Path

import pytest

from trimaran import paths
from trimaran.errors import UsageError


def test_a_relative_cache_and_checkout_are_made_absolute_at_once(
    own_place: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", "here/cache")
    assert paths.cache("images") == own_place / "here/cache/images"
    monkeypatch.setenv("TRIMARAN_ROOT", "../checkout")
    assert paths.repository().is_absolute()
    assert paths.repository().resolve() == checkout


def test_without_a_home_folder_there_is_no_cache_in_the_working_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TRIMARAN_CACHE")
    monkeypatch.setattr(paths, "user_cache_path", lambda name: Path("~/.cache") / name)
    with pytest.raises(UsageError, match="no home folder is known"):
        paths.cache()
