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


def test_a_checkout_comes_before_what_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = tmp_path / "share"
    for name in ("recipes", "containers"):
        (share / name).mkdir(parents=True)
    monkeypatch.setattr(paths, "SHARE", share)
    assert paths.repository() != share
    monkeypatch.setattr(paths, "__file__", str(tmp_path / "lib/site-packages/trimaran/paths.py"))
    assert paths.repository() == share
    with pytest.raises(UsageError, match="was installed with trimaran") as caught:
        paths.refuse_installed(share / "containers/x")
    assert "TRIMARAN_ROOT" in str(caught.value.hint)
    paths.refuse_installed(tmp_path / "own")
