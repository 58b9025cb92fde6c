from __future__ import annotations

import pwd
import sys
from pathlib import Path

import pytest

from refusals import refused
from trimaran import cli, paths, site_file


def test_a_relative_cache_and_checkout_are_made_absolute_at_once(
    own_place: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMARAN_CACHE", "here/cache")
    assert paths.cache("images") == own_place / "here/cache/images"
    monkeypatch.setenv("TRIMARAN_ROOT", "../checkout")
    assert paths.repository().is_absolute()
    assert paths.repository().resolve() == checkout


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
    with refused("definition-installed", share / "containers/x") as caught:
        paths.refuse_installed(share / "containers/x")
    assert "TRIMARAN_ROOT" in str(caught.value.hint)
    paths.refuse_installed(tmp_path / "own")


NOWHERE: list[dict[str, str]] = [
    {}, {"HOME": ""}, {"HOME": "me"}, {"HOME": "~"}, {"XDG_CACHE_HOME": ""},
    {"XDG_CACHE_HOME": "relative"}, {"XDG_CACHE_HOME": "~/c"}, {"TRIMARAN_CACHE": ""},
]
"""Environments that name no home folder, for a user whom the user database does not know."""


def as_nobody(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """Run as a user whom the system's user database does not contain."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "TRIMARAN_CACHE",
                 "USER", "LOGNAME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.parametrize("environ", NOWHERE)
@pytest.mark.parametrize(("words", "code"), [
    ("list recipes", 0), ("list apps", 0), ("list images", 0), ("list data", 0), ("data list", 0),
    ("show recipes resnet-imagenet/cpu-quickstart", 0), ("doctor", None), ("site show", 0),
    ("status", 0), ("run resnet-imagenet/cpu-quickstart --dry-run --engine host", 2),
    ("submit resnet-imagenet/cpu-2node-smoke --dry-run", None), ("cache list", 2),
    ("data get fashion-mnist --offline", 2), ("data verify fashion-mnist", 2),
    ("site init --yes", None), ("pull torch-cpu --registry localhost:1/x", None),
])
def test_without_a_home_every_command_says_so(
    own_place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    environ: dict[str, str], words: str, code: int | None,
) -> None:
    as_nobody(monkeypatch, environ)
    monkeypatch.setattr(sys, "argv", ["trimaran", *words.split()])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr().err
    assert ended.value.code in ((0, 1, 2, 3, 4) if code is None else (code,)), said
    if code == 2:
        assert "[home-unknown]" in said
        assert "HOME" in said
    assert list(own_place.iterdir()) == []


@pytest.mark.parametrize(("environ", "place"), [
    ({"TRIMARAN_CACHE": "/t"}, "/t"), ({"HOME": "/h"}, "/h/.cache/trimaran"),
    ({"HOME": "/h", "TRIMARAN_CACHE": ""}, "/h/.cache/trimaran"),
    ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/trimaran"),
    ({"HOME": "/h", "XDG_CACHE_HOME": "x"}, "/h/.cache/trimaran"),
    ({"HOME": "", "XDG_CACHE_HOME": "/x"}, "/x/trimaran"),
])
def test_the_cache_is_where_the_first_absolute_path_says(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], place: str
) -> None:
    as_nobody(monkeypatch, environ)
    assert paths.cache() == Path(place)
    assert site_file.load(None) == site_file.Site()


def test_the_user_database_is_asked_where_home_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    as_nobody(monkeypatch, {"HOME": ""})
    entry = pwd.struct_passwd(("me", "x", 1, 1, "", "/home/me", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    assert paths.cache() == Path("/home/me/.cache/trimaran")
